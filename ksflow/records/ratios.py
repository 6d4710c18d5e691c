"""A trial's base, and the comparability of verdicts. Speeds are in `scale`."""

from collections.abc import Mapping

from ksflow.records.evaluations import Evaluation
from ksflow.records.trials import Origin, Trial


def first_attempt(trial: Trial, trials: Mapping[str, Trial]) -> Trial | None:
    """Return the trial that first carried out the same experiment: itself, or for a repair the first attempt of its
    chain of repairs; None if that is not among `trials`.
    """
    found: Trial | None = trial
    for _ in range(len(trials) + 1):
        if found is None or found.origin is not Origin.REPAIR:
            return found
        found = trials.get(found.parents[0]) if found.parents else None
    return None


def base_of(trial: Trial, trials: Mapping[str, Trial]) -> Trial | None:
    """Return the kernel for which a trial's experiment was designed; a repair has the base of the attempt that it
    repairs.

    Returns None for a seed, or if the base is not among `trials` (id -> trial).
    """
    first = first_attempt(trial, trials)
    return trials.get(first.parents[0]) if first and first.parents else None


def verdict_key(evaluation: Evaluation) -> tuple[str, str, str]:
    """Return what a verdict applies to: the problem's digest, the judge, the machine."""
    return evaluation.problem, evaluation.judge, evaluation.target
