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
    beside it now. A kernel that was ahead must not read behind or level in an interval below the recorded one. Times
    decide only without ratios, because a machine may be slower as a whole. said: another trial ->
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
    (times, reached), ratios = _times(problem, record, now), _ratios(said, record, now)
    rows = (verdicts, *times, *(cells for cells, _, _ in ratios))
    holds = [fine for _, fine, _ in ratios] or [reached]
    if all(holds) or (reached and not any(lost for *_, lost in ratios)):
        return Agreement(True, rows)
    if now.why_unranked or None in holds:
        clocks = any("clock" in remark for *_, remark in rows)
        why = "the record and this judgement are by different clocks" if clocks else "the machine is too busy to tell"
        return Agreement(None, rows, now.why_unranked or why)
    return Agreement(False, rows)


def _times(problem: Problem, record: Evaluation, now: Evaluation) -> tuple[list[Cells], bool | None]:
    """Return the rows of the times, and whether the fastest likely time now reaches the slowest likely time then; None
    if the machine is busy, or if the clocks differ."""
    scores = "score, µs", format_us(record.score_us or 0.0), format_us(now.score_us or 0.0)
    then, today = _clocks(record), _clocks(now)
    if differing := [case for case in then if today.get(case, then[case]) != then[case]]:
        each = [", ".join(dict.fromkeys(clocks[case] for case in differing)) for clocks in (then, today)]
        clocks = f"clock of {', '.join(differing)}", each[0], each[1], "differs"
        return [clocks, (*scores, "by different clocks: not comparable")], None
    noise = max(_noise(record), _noise(now), ANOTHER_DAY)
    slowest_then = problem.aggregate(spread_us(timing)[1] for timing in record.timings) * noise
    fine = problem.aggregate(spread_us(timing)[0] for timing in now.timings) <= slowest_then
    busy = not fine and (now.evidence.load or 0.0) > _BUSY_LOAD
    word = "within noise or better" if fine else "slower by more than noise"
    if busy:
        word += f", at a load of {now.evidence.load:.2g}"
    return [(*scores, word)], None if busy else fine


def _clocks(evaluation: Evaluation) -> dict[str, str]:
    """Return case -> the name of the clock of its times, such as `wall` or `cpu`, where that is recorded."""
    return {row.case: row.clock.partition(":")[0] for row in evaluation.evidence.timed if row.clock}


def _ratios(said: Mapping[str, Speedup], record: Evaluation, now: Evaluation) -> list[tuple[Cells, bool | None, bool]]:
    """Return a row for each ratio, whether it holds (None: it cannot be told), and whether it reads as lost: the kernel
    was ahead, and the new interval lies below the recorded one and is not above 1."""
    rows = []
    for name, old in said.items():
        if new := now.versus(name):
            near, before = new.high * ANOTHER_DAY >= old.low, record.versus(name)
            other = not near and before and before.clocks and new.clocks and before.clocks != new.clocks
            lost = old.low > 1 >= new.low and new.high < old.low
            busy = lost and near and (now.evidence.load or 0.0) > _BUSY_LOAD
            word = "not confirmed: no longer ahead" if lost else _word(near)
            if other or busy:
                word = "less, by another clock than on record" if other else f"{word}, on a busy machine"
            told = new.ranked and old.ranked and not other and not busy
            cells = f"times as fast as {name}", str(old), str(new), new.why or word
            rows.append((cells, near and not lost if told else None, lost))
    return rows


def _word(holds: bool) -> str:
    return "holds" if holds else "less than on record"


def _noise(evaluation: Evaluation) -> float:
    control = evaluation.claim and evaluation.claim.control
    return math.exp(abs(math.log(control.speedup))) if control else 1.0
