"""How kernels compare: which kernel a trial was made from, and how many times as fast one is as another.

Everything that states a base or a gain (prompts, notes, grades, training data, tables) asks these two functions, so
that no two of them can give different answers.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ksflow.records.base import Json
from ksflow.records.evaluations import Evaluation
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
    for row in _own_rows(ours, their_id):
        return Speedup(row["speedup"], row["low"], row["high"], True)
    for row in _own_rows(theirs, our_id):
        return Speedup(1 / row["speedup"], 1 / row["high"], 1 / row["low"], True)
    for mine, its in _rows_of_thirds(ours, theirs):
        return Speedup(mine["speedup"] / its["speedup"], mine["low"] / its["high"], mine["high"] / its["low"], True)
    ratio = theirs.score_us / ours.score_us
    return Speedup(ratio, ratio / BETTER_BY, ratio * BETTER_BY, False)


def key(evaluation: Evaluation) -> tuple[str, str, str]:
    """What a verdict holds for: the problem's digest, the judge, the machine."""
    return evaluation.problem, evaluation.judge, evaluation.target


def usable(row: Json | None) -> bool:
    """Whether a row of the evidence has a positive speed-up with both ends of its interval."""
    values = [row.get(name) for name in ("speedup", "low", "high")] if row else [None]
    return all(isinstance(value, int | float) and value > 0 for value in values)


def _own_rows(evaluation: Evaluation, other: str) -> Iterator[Json]:
    """What the judge measured beside `other`: the row among `against`, then the claim."""
    if not other:
        return
    for row in (evaluation.beside(other), evaluation.claim if evaluation.claim.get("id") == other else None):
        if row and usable(row):
            yield row


def _rows_of_thirds(ours: Evaluation, theirs: Evaluation) -> Iterator[tuple[Json, Json]]:
    """Rows of both about the same third kernel, the newest first."""
    for mine in reversed(ours.evidence.get("against", [])):
        its = theirs.beside(mine["id"])
        if its and usable(mine) and usable(its):
            yield mine, its
