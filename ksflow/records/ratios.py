"""Which kernel a trial was made from, and which verdicts can be compared. How fast kernels are is in `scale`."""

from collections.abc import Mapping

from ksflow.records.evaluations import Evaluation
from ksflow.records.trials import Origin, Trial


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


def key(evaluation: Evaluation) -> tuple[str, str, str]:
    """What a verdict holds for: the problem's digest, the judge, the machine."""
    return evaluation.problem, evaluation.judge, evaluation.target
