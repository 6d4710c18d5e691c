"""Which of the designed experiments are run.

`paper` is the paper's rule: most innovative, highest maximum, highest minimum. `calibrated` keeps the first of these
and fills the other places by the gain that a fit on the record expects: the chance of being right times the improvement
if it is, each a ridge regression on the predicted range and the innovation, shrunk as leaving one out says. With too
short a record it is `paper`. It knows predictions alone; what an experiment says is not read.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ksflow.errors import ConfigError
from ksflow.notes.calibration import Prediction
from ksflow.records import Experiment, portfolio

PICKS = ("calibrated", "paper")
LEAST = 12
"""Measured experiments, without which nothing is fitted."""
_LEAST_RIGHT = 4  # of them accepted
_MEMORY = 300  # the newest predictions
_RUN = 3  # experiments of a plan
_PENALTIES = (1000.0, 100.0, 30.0, 10.0, 3.0, 1.0)
_FARTHEST = 3.0  # standard deviations from the record's mean; beyond, a feature counts as this far
_LOWEST = -90.0  # percent

Vector = tuple[float, ...]


def valid(pick: str) -> str:
    """`pick`, where there is such a rule. Raises ConfigError."""
    if pick not in PICKS:
        raise ConfigError(f"designer.pick={pick!r} is unknown; choose one of {', '.join(PICKS)}")
    return pick


def calibrated(experiments: tuple[Experiment, ...], record: Sequence[Prediction]) -> tuple[int, ...]:
    """Indices of the experiments to run: the most innovative, then by expected gain."""
    expected = expectation(record)
    if expected is None:
        return portfolio(experiments)
    bold = max(range(len(experiments)), key=lambda index: experiments[index].innovation)
    rest = [index for index in range(len(experiments)) if index != bold]
    values = {index: expected(experiments[index]) for index in rest}
    return (bold, *sorted(rest, key=lambda index: values[index], reverse=True)[: _RUN - 1])


def expectation(record: Sequence[Prediction]) -> Callable[[Experiment], tuple[float, float]] | None:
    """Experiment -> (expected improvement as a logarithm, chance of being right). None with too short a record.

    A slower kernel is not kept, so it improves nothing and costs nothing.
    """
    known = record[-_MEMORY:]
    right = [(one, one.gain_percent) for one in known if one.gain_percent is not None]
    if len(known) < LEAST or len(right) < _LEAST_RIGHT:
        return None
    chance = _fit(
        [_features(one.experiment) for one in known],
        [float(one.gain_percent is not None) for one in known],
    )
    gain = _fit(
        [_features(one.experiment) for one, _ in right],
        [math.log1p(max(percent, 0.0) / 100) for _, percent in right],
    )

    def expected(experiment: Experiment) -> tuple[float, float]:
        features = _features(experiment)
        likely = min(max(chance(features), 0.0), 1.0)
        return likely * max(gain(features), 0.0), likely

    return expected


def _features(experiment: Experiment) -> Vector:
    low, high = (math.log1p(max(percent, _LOWEST) / 100) for percent in experiment.gain_percent)
    return low, high, experiment.innovation / 100


# -- ridge regression ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ridge:
    means: Vector
    spreads: Vector
    offset: float
    weights: Vector

    def __call__(self, features: Vector) -> float:
        return self.offset + _dot(self.weights, _standard(features, self.means, self.spreads))


def _fit(rows: Sequence[Vector], values: Sequence[float]) -> _Ridge:
    """With the penalty that predicts best what is left out; of equals the largest."""
    columns = list(zip(*rows, strict=True))
    means = tuple(statistics.fmean(column) for column in columns)
    spreads = tuple(statistics.pstdev(column) or 1.0 for column in columns)
    xs = [_standard(row, means, spreads) for row in rows]
    offset = statistics.fmean(values)
    ys = [value - offset for value in values]
    gram = [[sum(x[i] * x[j] for x in xs) for j in range(len(means))] for i in range(len(means))]
    moments = [sum(x[i] * y for x, y in zip(xs, ys, strict=True)) for i in range(len(means))]
    fits = [_penalised(gram, moments, xs, ys, penalty) for penalty in _PENALTIES]
    _, weights = min(fits, key=lambda fit: fit[0])
    return _Ridge(means, spreads, offset, weights)


def _penalised(
    gram: list[list[float]], moments: list[float], xs: list[Vector], ys: list[float], penalty: float
) -> tuple[float, Vector]:
    """The squares' sum of what is wrong when each row is left out, and the weights."""
    size = len(moments)
    matrix = [[gram[i][j] + penalty * (i == j) for j in range(size)] for i in range(size)]
    weights = _solve(matrix, moments)
    inverse = [_solve(matrix, [float(i == j) for j in range(size)]) for i in range(size)]
    error = 0.0
    for x, y in zip(xs, ys, strict=True):
        leverage = 1 / len(xs) + _dot(x, [_dot(row, x) for row in inverse])
        error += ((y - _dot(weights, x)) / max(1 - leverage, 1e-6)) ** 2
    return error, weights


def _solve(matrix: list[list[float]], right: Sequence[float]) -> Vector:
    """Of a positive definite system, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, row in enumerate(rows):
        for other in rows[i + 1 :]:
            factor = other[i] / row[i]
            other[:] = [a - factor * b for a, b in zip(other, row, strict=True)]
    found: list[float] = []
    for i in reversed(range(len(rows))):
        known = sum(a * b for a, b in zip(rows[i][i + 1 : -1], found, strict=True))
        found.insert(0, (rows[i][-1] - known) / rows[i][i])
    return tuple(found)


def _standard(features: Vector, means: Vector, spreads: Vector) -> Vector:
    scaled = ((x - mean) / spread for x, mean, spread in zip(features, means, spreads, strict=True))
    return tuple(min(max(x, -_FARTHEST), _FARTHEST) for x in scaled)


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))
