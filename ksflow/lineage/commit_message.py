"""Commit messages: they read well in `git log --oneline`, and their trailers are for tools.

What a model wrote stands in them indented and stripped of control characters, so it can pass for neither.
"""

import re
from collections.abc import Mapping

from ksflow.errors import printable
from ksflow.records import Trial

ANNOTATION = "Annotation"
"""The trailer of a commit that adds to what is known of a kernel, and says nothing of its verdict."""
_STEP = re.compile(r"\d+\.\d+\n?")


def describe(trial: Trial, label: str) -> str:
    """A trial's commit message: reads well in `git log --oneline`, trailers for tools."""
    evaluation = trial.evaluation
    what = trial.experiment.description if trial.experiment else trial.name or trial.origin.value
    score = f" {evaluation.score_us:.4g} µs" if evaluation and evaluation.score_us else ""
    state = evaluation.verdict.value if evaluation else "failed" if trial.failure else label
    trailers = {
        "Trial": trial.id,
        "Base": trial.parents[0] if trial.parents else "",
        "Reference": trial.parents[-1] if trial.parents else "",
        "Verdict": evaluation.verdict.value if evaluation else "",
        "Score-us": f"{evaluation.score_us:.6g}" if evaluation and evaluation.score_us else "",
        "Target": evaluation.target if evaluation else "",
        "Cost-usd": f"{trial.cost.usd:.6f}",
    }
    body = trial.failure or (evaluation.reason if evaluation else "") or (trial.kernel.report if trial.kernel else "")
    prefix = "" if label in ("written", "evaluated") else f"{label}, "
    return plain(f"{trial.id} {prefix}{state}{score}: {what}", body, trailers)


def plain(subject: str, body: str, trailers: Mapping[str, str]) -> str:
    """A commit message. Text that a model wrote is indented, so it cannot pass for a trailer."""
    first = " ".join(printable(subject).split())[:120]
    lines = [f"    {line}".rstrip() for line in printable(body).splitlines()]
    tail = [f"{key}: {value}" for key, value in trailers.items() if value]
    parts = [first, "\n".join(lines)[:4000].rstrip(), "\n".join(tail)]
    return "\n\n".join(part for part in parts if part) + "\n"


def with_step(text: str, step: str) -> str:
    """A message with its place in the order of the run's commits, as its last trailer."""
    paragraphs = text.rstrip("\n").split("\n\n")
    trailers = len(paragraphs) > 1 and not paragraphs[-1].startswith(" ")
    return f"{text}{'' if trailers else chr(10)}Step: {step}\n"


def without_step(text: str) -> tuple[str, str]:
    """A message as it was before `with_step`, and the step; empty where there is none."""
    body, mark, step = text.rpartition("Step: ")
    if not mark or not _STEP.fullmatch(step):
        return text, ""
    return (body[:-1] if body.endswith("\n\n") else body), step.rstrip("\n")
