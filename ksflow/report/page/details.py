"""Details of a trial on the page: evidence, features, changes from its base."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import asdict

from ksflow.records import Explanation, Json, Trial
from ksflow.report import evidence, explanation, words

_CONTEXT = 3  # lines around a change
_PLACE = re.compile(r"([-+])(\d+)")


def trial_details(trial: Trial, base: Trial | None, explained: Explanation | None) -> Json:
    """Return the details of one trial."""
    before = base.kernel.files if base and base.kernel else {}
    after = trial.kernel.files if trial.kernel else {}
    diff: list[str] = []
    for name in sorted({*before, *after}) if before and after else ():
        old, new = (files.get(name, "").splitlines(keepends=True) for files in (before, after))
        if old != new:
            diff += _diff(old, new, f"base/{name}", name)
    return {
        "idea": trial.idea,
        "why": trial.reason,
        "evidence": asdict(evidence.describe(trial.evaluation)) if trial.evaluation else None,
        "explanation": "\n".join(explanation.explanation_lines(explained)) if explained else "",
        "review": "\n".join(words.review(trial)),
        "rubric": trial.experiment.rubric if trial.experiment else "",
        "diff": "".join(diff),
        "source": "" if before else "\n".join(f"{name}\n{body}" for name, body in after.items()),
    }


def _diff(old: list[str], new: list[str], old_name: str, new_name: str) -> Iterator[str]:
    """Yield lines like `difflib.unified_diff`, without searching the common ends, usually most of a kernel."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(same - _CONTEXT, 0)
    rest = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    tail = next((at for at, (a, b) in enumerate(rest) if a != b), min(len(old), len(new)) - same)
    cut = max(tail - _CONTEXT, 0)
    lines = difflib.unified_diff(old[start : len(old) - cut], new[start : len(new) - cut], old_name, new_name)
    for line in lines:
        yield _PLACE.sub(lambda match: f"{match[1]}{int(match[2]) + start}", line) if line.startswith("@@") else line
