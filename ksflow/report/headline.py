"""The one figure that a run claims: the winner beside the baselines, as they were timed in turns on one machine.

Scores of different moments are no part of it: two kernels that were never timed side by side have no speed-up here.
"""

import re
from collections.abc import Iterable
from pathlib import PurePath

from ksflow.records import Comparison, Trial
from ksflow.report.words import us

_SPELLED = {"torch": "PyTorch", "numpy": "NumPy"}


def called(baseline: Trial) -> str:
    """A baseline's name for a person: `00_numpy.py` is NumPy."""
    name = re.sub(r"^\d+_", "", PurePath(baseline.name).stem)
    return _SPELLED.get(name, name) or baseline.id


def beside(trial: Trial, baselines: Iterable[Trial]) -> list[tuple[Trial, Comparison]]:
    """The baselines that it was timed beside, each with the row that says so; the least speed-up first."""
    rows = [(one, trial.evaluation.beside(one.id)) for one in baselines if trial.evaluation and one.id != trial.id]
    return sorted(((one, row) for one, row in rows if row), key=lambda pair: pair[1].speedup)


def speedup(trial: Trial, baselines: Iterable[Trial]) -> float | None:
    """Over the baseline that it beats by least; None where it was timed beside none."""
    return next((row.speedup for _, row in beside(trial, baselines)), None)


def claim(trial: Trial, baselines: Iterable[Trial]) -> str:
    """`x4.82 [4.71, 4.9] over NumPy`; empty where it was timed beside no baseline."""
    return next((f"{row} over {called(one)}" for one, row in beside(trial, baselines)), "")


def headline(best: Trial, baselines: tuple[Trial, ...]) -> str:
    """`winner 00048: x4.82 [4.71, 4.9] over NumPy`, or what there is to say in place of it."""
    if any(best.id == one.id for one in baselines):
        return f"winner {best.id}: {called(best)}, a baseline: nothing was faster for sure"
    missing = ", not timed beside a baseline" if baselines else ""
    return f"winner {best.id}: {claim(best, baselines) or f'{us(best.score_us or 0.0)} µs{missing}'}"
