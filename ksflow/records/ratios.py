"""How kernels compare: which kernel a trial was made from, and how many times as fast one is as another.

Everything that states a base or a gain (prompts, notes, grades, training data, tables) asks these two functions, so
that no two of them can give different answers.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ksflow.records.evaluations import Evaluation
from ksflow.records.evidence import RESOLVED, Comparison, Ratio
from ksflow.records.trials import Origin, Trial

BETTER_BY = 1.03
"""How much better a score must be where two kernels were never timed side by side."""


class Speedup(NamedTuple):
    """How many times as fast one kernel is as another."""

    ratio: float
    """2 means twice as fast."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    paired: bool
    """Measured side by side, or both beside the same third kernel. Otherwise it is the ratio of the two scores, and the
    interval is `BETTER_BY` on either side."""

    def __str__(self) -> str:
        return f"x{self.ratio:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def gain_percent(self) -> float:
        """100 means twice as fast."""
        return 100 * (self.ratio - 1)

    @property
    def slower(self) -> bool:
        """Whether it is surely behind, by more than a judge resolves."""
        return self.high < 1 / RESOLVED


def first_attempt(trial: Trial, trials: Mapping[str, Trial]) -> Trial | None:
    """The trial that first carried out the same experiment: itself, or, for a repair, the attempt at the beginning of
    its chain of repairs. None where that is not among `trials`.
    """
    found: Trial | None = trial
    for _ in range(len(trials) + 1):
        if found is None or found.origin is not Origin.REPAIR:
            return found
        found = trials.get(found.parents[0]) if found.parents else None
    return None


def base_of(trial: Trial, trials: Mapping[str, Trial]) -> Trial | None:
    """The kernel that a trial's experiment was designed for. A repair has the base of the attempt that it repairs, not
    that failed attempt. None for a seed, and where the base is not among `trials` (id -> trial).
    """
    first = first_attempt(trial, trials)
    return trials.get(first.parents[0]) if first and first.parents else None


def speedup(trial: Trial, other: Trial) -> Speedup | None:
    """How many times as fast `trial` is as `other`.

    The paired measurement counts where there is one: the newest of the two beside each other (`measured`), else both
    beside the same third kernel. Otherwise it is the ratio of the two scores. None unless both are accepted, neither is
    stale, and one judge gave both verdicts on one machine for one version of the problem.
    """
    if trial.stale or other.stale or trial.evaluation is None or other.evaluation is None:
        return None
    return between(trial.evaluation, trial.id, other.evaluation, other.id)


def between(ours: Evaluation, our_id: str, theirs: Evaluation, their_id: str) -> Speedup | None:
    """The same for two verdicts, where those of their trials may be others by now. An empty id has no paired rows."""
    if not (ours.score_us and theirs.score_us) or key(ours) != key(theirs):
        return None
    if row := measured(ours, our_id, theirs, their_id):
        return Speedup(row.speedup, row.low, row.high, True)
    for mine in reversed(ours.evidence.against):  # both beside the same third kernel, the newest first
        if its := theirs.beside(mine.id):
            return Speedup(mine.speedup / its.speedup, mine.low / its.high, mine.high / its.low, True)
    ratio = theirs.score_us / ours.score_us
    return Speedup(ratio, ratio / BETTER_BY, ratio * BETTER_BY, False)


def key(evaluation: Evaluation) -> tuple[str, str, str]:
    """What a verdict holds for: the problem's digest, the judge, the machine."""
    return evaluation.problem, evaluation.judge, evaluation.target


def relative(anchor: Trial, trials: Iterable[Trial]) -> dict[str, Speedup]:
    """How many times as fast as one trial each of those is that were timed in turns with it: with it, or with one that
    was, and so on, by the fewest steps. One scale for all of them, whatever moments their scores are of.
    """
    known = {trial.id: trial for trial in trials if trial.score_us} | {anchor.id: anchor}
    beside: dict[str, set[str]] = {name: set() for name in known}
    for trial in known.values():
        for row in trial.evaluation.evidence.against if trial.evaluation else ():
            if row.id in known:
                beside[trial.id].add(row.id)
                beside[row.id].add(trial.id)
    found = {anchor.id: Speedup(1.0, 1.0, 1.0, True)}
    for name in (queue := [anchor.id]):
        last = found[name]
        for other in sorted(beside[name] - found.keys()):
            ours, theirs = known[other].evaluation, known[name].evaluation
            step = measured(ours, other, theirs, name) if ours and theirs and key(ours) == key(theirs) else None
            if step and step.ranked:
                found[other] = Speedup(last.ratio * step.speedup, last.low * step.low, last.high * step.high, True)
                queue.append(other)
    return found


def measured(ours: Evaluation, our_id: str, theirs: Evaluation, their_id: str) -> Ratio | None:
    """How the one did beside the other when the two were last timed in turns; None where they never were.

    Either verdict may have the row. A later confirmation counts before an earlier one, and that before the search;
    within the search, the row of the older trial, which was judged again. Two of one confirmation count together: where
    they disagree, the interval has both. What could not be ranked counts where there is nothing else.
    """
    mine, its = _row(ours, their_id), _row(theirs, our_id)
    if mine is None or its is None:
        return mine or (its.inverse if its else None)
    if mine.ranked is not its.ranked:
        return mine if mine.ranked else its.inverse
    if mine.moment != its.moment:
        return mine if mine.moment > its.moment else its.inverse
    other = its.inverse
    if not mine.moment:
        return mine if our_id < their_id else other
    speedup = math.sqrt(mine.speedup * other.speedup)
    return replace(other, speedup=speedup, low=min(mine.low, other.low), high=max(mine.high, other.high))


def _row(evaluation: Evaluation, other: str) -> Comparison | None:
    """What one verdict has beside `other`: its claim, or one of `against`, with the doubts of the whole verdict."""
    row, claim = evaluation.beside(other), evaluation.claim
    if claim and other and claim.id == other and (row is None or row.moment <= claim.moment):
        row = claim
    if row and (doubt := evaluation.evidence.unranked):
        return replace(row, ranked=False, why=doubt)
    return row
