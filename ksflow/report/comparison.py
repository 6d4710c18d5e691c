"""Two verdicts on one kernel: does the later one bear the earlier one out? Faster than it was is no contradiction."""

import math
from dataclasses import dataclass

from ksflow.records import BETTER_BY, Evaluation, Key, Problem
from ksflow.report.evidence import spread_us


@dataclass(frozen=True)
class Agreement:
    """What was found, in words, and whether the record holds."""

    holds: bool
    words: tuple[str, ...]


def compare(problem: Problem, record: Evaluation, now: Evaluation) -> Agreement:
    """The record against a new judgement: the verdict, and where both were made under one key the time."""
    same = record.verdict is now.verdict
    verdicts = f"verdict: {record.verdict.value} on record, {now.verdict.value} now"
    changed = Key(now.problem, now.judge, now.target).changed(record)
    if changed:
        stale = f"the record is stale ({changed} changed since): only the verdicts are compared"
        return Agreement(same, (stale, verdicts))
    if not (same and now.accepted):
        return Agreement(same, (verdicts,))
    fine, times = _times(problem, record, now)
    if not fine and (beside := _beside(record, now)):
        return Agreement(beside[0], (verdicts, times, beside[1]))
    return Agreement(fine, (verdicts, times))


def _times(problem: Problem, record: Evaluation, now: Evaluation) -> tuple[bool, str]:
    """Whether the fastest that is likely now reaches the slowest that was likely then."""
    noise = max(_noise(record), _noise(now), BETTER_BY)
    slowest_then = problem.aggregate(spread_us(timing)[1] for timing in record.timings) * noise
    fastest_now = problem.aggregate(spread_us(timing)[0] for timing in now.timings)
    fine = fastest_now <= slowest_then
    words = f"score: {record.score_us:.5g} µs on record, {now.score_us:.5g} µs now"
    return fine, f"{words}: {'within noise or better' if fine else 'slower by more than noise'}"


def _beside(record: Evaluation, now: Evaluation) -> tuple[bool, str] | None:
    """The machine may be slower today as a whole: speed-ups over the same kernels tell."""
    both = [(row, new) for row in record.evidence.against if (new := now.beside(row.id))]
    if not both:
        return None
    fine = all(new.high * BETTER_BY >= old.low for old, new in both)
    words = "; ".join(f"x{old.speedup:.3g} then and x{new.speedup:.3g} now over {old.id}" for old, new in both)
    return fine, f"side by side: {words}: {'within noise or better' if fine else 'less than on record'}"


def _noise(evaluation: Evaluation) -> float:
    """How far the control was from 1, as a factor."""
    control = evaluation.claim and evaluation.claim.control
    return math.exp(abs(math.log(control.speedup))) if control else 1.0
