"""How kernels compare: which kernel a trial was made from, and how many times as fast one is as another.

Everything that states a base or a gain (prompts, notes, grades, training data, tables) asks these two functions, so
that no two of them can give different answers.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ksflow.records.evaluations import Evaluation
from ksflow.records.evidence import Ratio
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

    @property
    def gain_percent(self) -> float:
        """100 means twice as fast."""
        return 100 * (self.ratio - 1)


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

    The paired measurement counts where there is one: the trial timed beside the other, its claim against the other, the
    other timed beside the trial, both timed beside the same third kernel. Otherwise it is the ratio of the two scores.
    None unless both are accepted, neither is stale, and one judge gave both verdicts on one machine for one version of
    the problem.
    """
    if trial.stale or other.stale or trial.evaluation is None or other.evaluation is None:
        return None
    return between(trial.evaluation, trial.id, other.evaluation, other.id)


def between(ours: Evaluation, our_id: str, theirs: Evaluation, their_id: str) -> Speedup | None:
    """The same for two verdicts, where those of their trials may be others by now. An empty id has no paired rows."""
    if not (ours.score_us and theirs.score_us) or key(ours) != key(theirs):
        return None
    if row := _measured(ours, their_id) or ((row := _measured(theirs, our_id)) and row.inverse):
        return Speedup(row.speedup, row.low, row.high, True)
    for mine in reversed(ours.evidence.against):  # both beside the same third kernel, the newest first
        if its := theirs.beside(mine.id):
            return Speedup(mine.speedup / its.speedup, mine.low / its.high, mine.high / its.low, True)
    ratio = theirs.score_us / ours.score_us
    return Speedup(ratio, ratio / BETTER_BY, ratio * BETTER_BY, False)


def key(evaluation: Evaluation) -> tuple[str, str, str]:
    """What a verdict holds for: the problem's digest, the judge, the machine."""
    return evaluation.problem, evaluation.judge, evaluation.target


def _measured(evaluation: Evaluation, other: str) -> Ratio | None:
    """What the judge measured beside `other`: as one of `against`, or as the claim."""
    claim = evaluation.claim
    return evaluation.beside(other) or (claim if claim and other and claim.id == other else None)
