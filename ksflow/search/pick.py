"""Which of the designed experiments are run.

`paper` is the paper's rule: most innovative, highest maximum, highest minimum. `predicted` takes the three whose
predicted range has the highest middle, and is there to be compared with. `calibrated` keeps the first of the paper's
and fills the other places by the gain that a fit on the record expects: the chance of being right times the improvement
if it is, each a ridge regression on the predicted range and the innovation, shrunk as leaving one out says. With too
short a record it is `paper`. It knows predictions alone; what an experiment says is not read.
"""

import math
from collections.abc import Callable, Sequence

from ksflow.errors import ConfigError
from ksflow.notes.calibration import Prediction, predictions
from ksflow.records import Experiment, Population, portfolio

LEAST = 12
"""Measured experiments, without which nothing is fitted."""
_PICKS = ("calibrated", "paper", "predicted")
_LEAST_RIGHT = 4  # of them accepted
_MEMORY = 300  # the newest predictions
_RUN = 3  # experiments of a plan
_PENALTIES = (1000.0, 100.0, 30.0, 10.0, 3.0, 1.0)
_FARTHEST = 3.0  # standard deviations from the record's mean; beyond, a feature counts as this far
_LOWEST = -90.0  # percent


def check_pick(pick: str) -> str:
    """`pick`, where there is such a rule. Raises ConfigError."""
    if pick not in _PICKS:
        raise ConfigError(f"designer.pick={pick!r} is unknown; choose one of {', '.join(_PICKS)}")
    return pick


def picked(pick: str, experiments: tuple[Experiment, ...], population: Population, by: str) -> tuple[int, ...]:
    """Indices of the experiments to run by the rule `pick`; the record is that of the designer `by`."""
    if pick == "calibrated":
        return calibrated(experiments, [made for made in predictions(population) if made.by == by])
    if pick == "predicted":
        return tuple(sorted(range(len(experiments)), key=lambda index: -sum(experiments[index].gain_percent))[:_RUN])
    return portfolio(experiments)


def calibrated(experiments: tuple[Experiment, ...], record: Sequence[Prediction]) -> tuple[int, ...]:
    """Indices of the experiments to run: the most innovative, then by expected gain."""
    expected = _expectation(record)
    if expected is None:
        return portfolio(experiments)
    bold = max(range(len(experiments)), key=lambda index: experiments[index].innovation)
    values = {index: expected(each) for index, each in enumerate(experiments) if index != bold}
    return (bold, *sorted(values, key=lambda index: values[index], reverse=True)[: _RUN - 1])


def _expectation(record: Sequence[Prediction]) -> Callable[[Experiment], tuple[float, float]] | None:
    """Experiment -> (expected improvement as a logarithm, chance of being right). None with too short a record.

    A slower kernel is not kept, so it improves nothing and costs nothing.
    """
    known = [(_features(one.experiment), one.gain_percent) for one in record[-_MEMORY:]]
    right = [(row, math.log1p(max(gain, 0.0) / 100)) for row, gain in known if gain is not None]
    if len(known) < LEAST or len(right) < _LEAST_RIGHT:
        return None
    chance = _ridge([(row, float(gain is not None)) for row, gain in known])
    improvement = _ridge(right)

    def expected(experiment: Experiment) -> tuple[float, float]:
        features = _features(experiment)
        likely = min(max(chance(features), 0.0), 1.0)
        return likely * max(improvement(features), 0.0), likely

    return expected


def _features(experiment: Experiment) -> tuple[float, ...]:
    low, high = (math.log1p(max(percent, _LOWEST) / 100) for percent in experiment.gain_percent)
    return low, high, experiment.innovation / 100


def _ridge(pairs: Sequence[tuple[tuple[float, ...], float]]) -> Callable[[tuple[float, ...]], float]:
    """Features -> value, with the penalty that predicts best what is left out; of equals the largest."""
    import numpy as np  # here: a designer that is a model starts without it

    rows, values = np.array([row for row, _ in pairs]), np.array([value for _, value in pairs])
    means, spreads, offset = rows.mean(0), rows.std(0), float(values.mean())
    spreads[spreads < 1e-12] = 1.0
    x = np.clip((rows - means) / spreads, -_FARTHEST, _FARTHEST)
    fits = []
    for penalty in _PENALTIES:
        inverse = np.linalg.inv(x.T @ x + penalty * np.eye(x.shape[1]))
        weights = inverse @ x.T @ (values - offset)
        leverage = 1 / len(x) + ((x @ inverse) * x).sum(1)
        wrong = (values - offset - x @ weights) / np.maximum(1 - leverage, 1e-6)
        fits.append((float(wrong @ wrong), weights))
    _, best = min(fits, key=lambda fit: fit[0])
    return lambda row: offset + float(np.clip((np.array(row) - means) / spreads, -_FARTHEST, _FARTHEST) @ best)
