"""Forecasts for configurations that were not measured: the catalogue's guess, corrected by measurements.

The logarithm of the time is the sum of the values' contributions: a linear regression with the catalogue's guess as
prior, in which a kernel has less weight the more of its values differ from the base's. Other families are not used. The
risk of failure is separate: causes of earlier failures, and values that were never tried.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksflow.kernels.source.causes import select_points
from ksflow.kernels.source.families import Config, Space
from ksflow.search.moves import ChoiceKind

_NOISE = 0.05  # of the logarithm of a time
_APART = 1.3  # factor of the noise for each value that differs from the base's
_MEMORY = 150  # points
_REACH = 1.5  # distance in options over which ordered values are correlated


@dataclass(frozen=True)
class Forecast:
    """The logarithm of the gain over the base, mean and standard deviation, and the probability of failure."""

    mean: float
    deviation: float
    risk: float
    ignorance: float  # share of the catalogue's uncertainty that is left: 1 without measurements


class Forecasts:
    """Forecasts, fitted once per round to the family's points, of which at least one was accepted."""

    def __init__(self, space: Space, kinds: Sequence[ChoiceKind]) -> None:
        self._space = space
        seen = {item for point in space.points if point.score_us for item in point.values.items()}
        pairs = [(t.name, option) for t in space.tunables for option in t.options]
        risks = [kind.risk_percent / 100 for t, kind in zip(space.tunables, kinds, strict=True) for _ in t.options]
        self._new = {pair: risk for pair, risk in zip(pairs, risks, strict=True) if pair not in seen}
        self._columns = {pair: column for column, pair in enumerate(pairs)}
        worth, self._prior = _prior(space, kinds)
        points = select_points([point for point in space.points if point.score_us], _MEMORY)
        rows = self._rows([point.values for point in points])
        times = np.array([math.log(point.score_us) for point in points if point.score_us])
        apart = np.array([len(space.changes(point.values)) for point in points])
        weights = _APART ** (-2.0 * apart) / _NOISE**2
        rest = times - rows @ worth
        center = (weights @ rest) / weights.sum()
        self._precision = np.linalg.inv(self._prior) + (rows.T * weights) @ rows
        learnt = np.linalg.solve(self._precision, (rows.T * weights) @ (rest - center))
        self._worth = worth + learnt
        misfits = rest - center - rows @ learnt
        self.misfit = math.sqrt((weights @ misfits**2) / weights.sum())
        """Root mean square of the deviation of joint effects from the sum of single ones."""

    def predict(self, configs: Sequence[Config]) -> list[Forecast]:
        """Return the forecast of each of `configs`, against the base."""
        change = self._rows([self._space.base]) - self._rows(configs)
        variance = (change @ np.linalg.inv(self._precision) * change).sum(1)
        before = (change @ self._prior * change).sum(1)
        ignorance = np.minimum(variance / np.maximum(before, 1e-9), 1.0)
        figures = zip(*(row.tolist() for row in (change @ self._worth, variance, ignorance)), strict=True)
        return [
            Forecast(gain, math.sqrt(left + _NOISE**2), self._risk(config), unknown)
            for config, (gain, left, unknown) in zip(configs, figures, strict=True)
        ]

    def _risk(self, config: Config) -> float:
        """Return the probability of failure, by a known cause or a value that neither base nor accepted kernel has."""
        survives = math.prod(1 - self._new.get(item, 0.0) for item in self._space.changes(config).items())
        return 1 - survives * (1 - self._space.failures.risk(config))

    def assume_measured(self, config: Config) -> None:
        """Continue as if `config` had been measured as expected, so that the next proposal differs."""
        (row,) = self._rows([config])
        self._precision = self._precision + np.outer(row, row) / _NOISE**2

    def _rows(self, configs: Sequence[Config]) -> NDArray[Any]:
        rows = np.zeros((len(configs), len(self._columns)))
        for row, config in zip(rows, configs, strict=True):
            as_based = {**self._space.base, **config}  # values without an effect are as in the base
            row[[self._columns[item] for item in as_based.items()]] = 1.0
        return rows


def _prior(space: Space, kinds: Sequence[ChoiceKind]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return means and covariance of the catalogue's guess of each value's contribution to the log time."""
    worth: list[float] = []
    sizes = [len(tunable.options) for tunable in space.tunables]
    covariance = np.zeros((sum(sizes), sum(sizes)))
    for kind, size in zip(kinds, sizes, strict=True):
        low, high = (math.log1p(percent / 100) for percent in kind.worth_percent)
        steps = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
        alike = np.exp(-steps / _REACH) if kind.ordered else np.eye(size)
        place = slice(len(worth), len(worth) + size)
        covariance[place, place] = max((high - low) / 2, 0.02) ** 2 * alike
        worth += [-(low + high) / 2 * step / max(size - 1, 1) for step in range(size)]
    return np.array(worth), covariance
