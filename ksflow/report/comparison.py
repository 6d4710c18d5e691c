"""Comparison of two verdicts on one kernel: whether the later confirms the earlier. A faster time confirms it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ksflow.records import ANOTHER_DAY, Evaluation, Key, Problem, Speedup
from ksflow.report.evidence import spread_us
from ksflow.report.words import format_us

_BUSY_LOAD = 1.5  # load average from which on a time alone proves nothing


Cells = tuple[str, str, str, str]  # a row: what is compared, then, now, and a remark


@dataclass(frozen=True)
class Agreement:
    """Whether a record holds, and the comparisons."""

    holds: bool | None  # None: it cannot be decided now, for the reason `why`
    rows: tuple[Cells, ...]
    why: str = ""


def compare(problem: Problem, record: Evaluation, now: Evaluation, said: Mapping[str, Speedup]) -> Agreement:
    """Compare the record with a new judgement: the verdicts, and under the same key the ratios over kernels timed
    beside it now. Times decide only without ratios, because a machine may be slower as a whole. said: another trial ->
    the ratio that the run states."""
    same = record.verdict is now.verdict
    verdicts = ("verdict", record.verdict.value, now.verdict.value, _word(same))
    if not same and not now.cacheable:
        return Agreement(None, (verdicts,), now.reason or now.why_unranked)
    if changed := Key(now.problem, now.judge, now.target).describe_changes(record):
        why = f"the record is stale ({changed} changed since): only the verdicts are compared"
        return Agreement(same, (verdicts,), why)
    if not (same and now.accepted):
        return Agreement(same, (verdicts,))
    (times, reached), ratios = _times(problem, record, now), _ratios(said, now)
    rows = (verdicts, times, *(cells for cells, _ in ratios))
    holds = [fine for _, fine in ratios] or [reached]
    if reached or all(holds):
        return Agreement(True, rows)
    if now.why_unranked or None in holds:
        return Agreement(None, rows, now.why_unranked or "the machine is too busy to tell")
    return Agreement(False, rows)


def _times(problem: Problem, record: Evaluation, now: Evaluation) -> tuple[Cells, bool | None]:
    """Return whether the fastest likely time now reaches the slowest likely time then; None if the machine is busy."""
    noise = max(_noise(record), _noise(now), ANOTHER_DAY)
    slowest_then = problem.aggregate(spread_us(timing)[1] for timing in record.timings) * noise
    fine = problem.aggregate(spread_us(timing)[0] for timing in now.timings) <= slowest_then
    busy = not fine and (now.evidence.load or 0.0) > _BUSY_LOAD
    word = "within noise or better" if fine else "slower by more than noise"
    if busy:
        word += f", at a load of {now.evidence.load:.2g}"
    return (
        "score, µs",
        format_us(record.score_us or 0.0),
        format_us(now.score_us or 0.0),
        word,
    ), None if busy else fine


def _ratios(said: Mapping[str, Speedup], now: Evaluation) -> list[tuple[Cells, bool | None]]:
    rows = []
    for name, old in said.items():
        if new := now.versus(name):
            fine = new.high * ANOTHER_DAY >= old.low
            cells = f"times as fast as {name}", str(old), str(new), new.why or _word(fine)
            rows.append((cells, fine if new.ranked and old.ranked else None))
    return rows


def _word(holds: bool) -> str:
    return "holds" if holds else "less than on record"


def _noise(evaluation: Evaluation) -> float:
    control = evaluation.claim and evaluation.claim.control
    return math.exp(abs(math.log(control.speedup))) if control else 1.0
