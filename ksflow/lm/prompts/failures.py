"""Failed attempts as prompt text: verdict, reason, and the relevant evidence."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from ksflow.errors import shorten
from ksflow.home import PACKAGE
from ksflow.lm.prompts.hardware import hardware
from ksflow.lm.prompts.times import format_time
from ksflow.records import Draft, Evaluation, Problem, Trial, Verdict

KEEP = "KEEP"  # a writer's answer to a mistaken verifier
_LOG = 4_000  # characters of a compiler's or a kernel's output
_REST = 1_500  # characters of evidence without a place of its own
_ROWS = 12  # of a table in the evidence
_FORMER = {"contents"}  # in evidence of earlier versions: it identifies secret inputs
_HIDDEN = ("expected", "seed")  # of the first wrong element, from untrusted authors
_EXPECTED = re.compile(r", expected \S+ within \S+")


def failure(failed: Trial | None, problem: Problem | None = None) -> str:
    """Return an attempt to repair, with the judge's evidence; "" for a first attempt."""
    if failed is None:
        return ""
    if isinstance(failed, Draft):
        return _reviewed(failed, problem)
    evaluation = failed.evaluation
    if evaluation is None:
        return f"Attempt {failed.id} at this experiment brought no kernel: {shorten(failed.failure, 500)}"
    lines = [f"Attempt {failed.id} at this experiment: {failed.verdict}. {evaluation.reason}".rstrip()]
    if again := _repeat(failed, evaluation):
        lines.append(again)
    else:
        lines += [*_SHOWN.get(evaluation.verdict, _ran)(evaluation), *hardware(evaluation, failed.kernel, problem)]
    evidence = evaluation.evidence
    placeless = {"upstream": evidence.upstream, "made": evidence.made, "unranked": evidence.unranked}
    unknown = {key: value for key, value in evidence.more.items() if key not in _FORMER}
    if rest := {**{key: value for key, value in placeless.items() if value}, **unknown}:
        lines.append(f"Besides: {_cut(json.dumps(rest, default=str, ensure_ascii=False), _REST)}")
    return "\n".join(lines)


def _reviewed(draft: Draft, problem: Problem | None) -> str:
    lines = [
        "This attempt was written a moment ago, and nobody has compiled it. Another model read it. It takes the risk "
        f"that the judge refuses it to be {draft.review.risk_percent:.0f} %, and found:"
    ]
    lines += [f"{number}. {finding}" for number, finding in enumerate(draft.review.findings, 1)]
    lines.append(
        "It may be mistaken: check each point against the code, mend what is wrong, and change nothing else. Where "
        f"nothing is wrong, write the one word {KEEP} in place of code or edits, and say why in the report."
    )
    if draft.repaired:
        lines.append(f"What it repairs: {failure(draft.repaired, problem)}")
    return "\n".join(lines)


def redacted_failure(failed: Trial) -> str:
    """Return the same for an author who may attack the judge: without expected values, seeds and the judge's paths."""
    judged = failed.evaluation
    return without_paths(failure(failed if judged is None else replace(failed, evaluation=without_answers(judged))))


def without_answers(evaluation: Evaluation) -> Evaluation:
    """Return a verdict without the first wrong element's expected value and seed."""
    shown = {key: value for key, value in evaluation.evidence.failed.items() if key not in _HIDDEN}
    return replace(evaluation, reason=_EXPECTED.sub("", evaluation.reason)).with_evidence(failed=shown)


def without_paths(text: str) -> str:
    """Return text without the folders of ksflow, of its interpreter and of the user, which tracebacks contain."""
    for path, name in _folders():
        text = text.replace(path, name)
    return text


@cache
def _folders() -> list[tuple[str, str]]:
    """Return folder -> its replacement, longest first."""
    named = {str(Path.home()): "~", str(Path.cwd()): "."}
    named |= dict.fromkeys((sys.prefix, sys.base_prefix, *(path for path in sys.path if path)), "(python)")
    named |= dict.fromkeys((str(PACKAGE), str(PACKAGE.resolve()), str(PACKAGE.parent)), "(ksflow)")
    return sorted(((path, name) for path, name in named.items() if len(path) > 1), key=lambda row: -len(row[0]))


def _repeat(failed: Trial, evaluation: Evaluation) -> str:
    if not failed.repeats:
        return ""
    score = f", {format_time(evaluation.score_us)}" if evaluation.score_us else ""
    same = "compiles to the same code as" if failed.compiles_alike else "is the code of"
    return (
        f"This {same} trial {failed.repeats}, which got {failed.verdict}{score}; it was not judged again. "
        "Write something that differs from it in substance."
    )


def _wrong(evaluation: Evaluation) -> list[str]:
    evidence = evaluation.evidence
    pairs = ", ".join(f"{key} {shorten(str(value), 120)}" for key, value in list(evidence.failed.items())[:_ROWS])
    lines = [f"The first wrong element: {pairs}"] if pairs else []
    for row in evidence.checked[:_ROWS]:
        worst = f"{row.worst:.1%}" if isinstance(row.worst, float) else str(row.worst)
        lines.append(f"Right on {row.case}: error {worst} of the bound.")
    return [*lines, *_ran(evaluation)]


def _ran(evaluation: Evaluation) -> list[str]:
    evidence = evaluation.evidence
    location = [f"{key} {value}" for key, value in (("phase", evidence.phase), ("at", evidence.at)) if value]
    lines = [f"It was in: {', '.join(location)}."] if location else []
    if error := evidence.error.strip():
        lines.append(f"Error:\n{_cut(error, _LOG, tail=True)}")
    return [*lines, *_output(evaluation, "What it printed", tail=True)]


def _output(evaluation: Evaluation, what: str, tail: bool) -> list[str]:
    log = evaluation.evidence.log.strip()
    return [f"{what}:\n{_cut(log, _LOG, tail)}"] if log else []


_SHOWN: dict[Verdict, Callable[[Evaluation], list[str]]] = {
    Verdict.COMPILE: lambda evaluation: _output(evaluation, "The compiler's output", tail=False),
    Verdict.INCORRECT: _wrong,
    Verdict.IMPOSSIBLE: lambda evaluation: [
        f"{row.case}: {row.us} us, floor {row.floor_us} us ({row.floor})" for row in evaluation.evidence.timed[:_ROWS]
    ],
}


def _cut(text: str, room: int, tail: bool = False) -> str:
    if len(text) <= room:
        return text
    left_out = f"({len(text) - room} characters left out)"
    return f"{left_out} ...{text[-room:]}" if tail else f"{text[:room]}... {left_out}"
