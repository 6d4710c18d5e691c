"""What to expect of configurations that nobody measured: the catalogue's guess, corrected by what was.

The logarithm of the time is what the values of the tunables are worth, one by one: a linear regression whose prior is
the catalogue's guess, in which a kernel counts the less the more of its values are not the base's. It knows nothing of
other families. Whether a kernel fails is another matter (`FailureRisk`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksflow.search.catalogue import Kind
from ksflow.search.effects import Values, values_and_pairs
from ksflow.search.space import remembered
from ksflow.source.families import Config, Point, Space

_NOISE = 0.05  # of the logarithm of a time
_APART = 1.3  # how much more of it a kernel has for each value that the base does not have
_MEMORY = 150  # points
_REACH = 1.5  # options over which ordered values stop resembling each other
_PAIR = 0.3  # how much less a pair is suspected of a failure than its values
_STATED = 0.999  # the chance that a stated cause strikes again
_REMEMBERED = 100  # failures, the newest


@dataclass(frozen=True)
class Forecast:
    """The logarithm of the gain over the base: its mean and standard deviation, and the chance to fail."""

    mean: float
    deviation: float
    risk: float
    ignorance: float
    """The share of the catalogue's uncertainty that is left: 1 where nothing was measured."""


class Forecasts:
    """Fitted once per round to the family's points, of which at least one was accepted."""

    def __init__(self, space: Space, kinds: Sequence[Kind]) -> None:
        self._space = space
        unknown = {t.name: kind.risk_percent / 100 for t, kind in zip(space.tunables, kinds, strict=True)}
        self._failures = FailureRisk(space.points, unknown)
        pairs = [(t.name, option) for t in space.tunables for option in t.options]
        self._columns = {pair: column for column, pair in enumerate(pairs)}
        worth, self._prior = _prior(space, kinds)
        points = remembered([point for point in space.points if point.score_us], _MEMORY)
        rows = self._rows([point.values for point in points])
        times = np.array([math.log(point.score_us) for point in points if point.score_us])
        apart = np.array([len(space.changes(point.values)) for point in points])
        weights = _APART ** (-2.0 * apart) / _NOISE**2
        rest = times - rows @ worth
        center = (weights @ rest) / weights.sum()
        self._precision = np.linalg.inv(self._prior) + (rows.T * weights) @ rows
        self._worth = worth + np.linalg.solve(self._precision, (rows.T * weights) @ (rest - center))

    def of(self, configs: Sequence[Config]) -> list[Forecast]:
        """What to expect of each of `configs`, against the base."""
        change = self._rows([self._space.base]) - self._rows(configs)
        variance = (change @ np.linalg.inv(self._precision) * change).sum(1)
        before = (change @ self._prior * change).sum(1)
        ignorance = np.minimum(variance / np.maximum(before, 1e-9), 1.0)
        figures = zip(*(row.tolist() for row in (change @ self._worth, variance, ignorance)), strict=True)
        return [
            Forecast(gain, math.sqrt(left + _NOISE**2), self._failures.risk(config), unknown)
            for config, (gain, left, unknown) in zip(configs, figures, strict=True)
        ]

    def assume_measured(self, config: Config) -> None:
        """Go on as if `config` had been measured as expected, so that the next one tells more."""
        (row,) = self._rows([config])
        self._precision = self._precision + np.outer(row, row) / _NOISE**2

    def _rows(self, configs: Sequence[Config]) -> NDArray[Any]:
        """A row for each configuration, with a 1 for each of its values."""
        rows = np.zeros((len(configs), len(self._columns)))
        for row, config in zip(rows, configs, strict=True):
            row[[self._columns[item] for item in config.items()]] = 1.0
        return rows


def _prior(space: Space, kinds: Sequence[Kind]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The catalogue's guess of what each value adds to the logarithm of the time: means and covariance."""
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


class FailureRisk:
    """The chance that a configuration fails, from those that did.

    A value, or a pair of values, that was ever accepted is innocent. The suspects of a failure share the blame by how
    many failures they would explain; those that the compiler or the judge named come first, and where its words state
    the cause (`FORM = amx needs ...`), they are taken at their word.
    """

    def __init__(self, points: Iterable[Point], unknown: Mapping[str, float]) -> None:
        """`unknown`: for each tunable, the chance that a value nobody tried fails."""
        listed = list(points)
        self._unknown = unknown
        right = [set(point.values.items()) for point in listed if point.score_us]
        self._innocent = {part for point in listed if point.score_us for part in values_and_pairs(point.values)}
        stated = {point.stated for point in listed if point.failed and point.stated}
        self._stated = [part for part in stated if not any(part <= values for values in right)]
        failed = [point for point in listed if point.failed and point.stated not in self._stated][-_REMEMBERED:]
        suspects = [self._suspects(point) for point in failed]
        explained = Counter(part for parts in suspects for part in parts)
        self._shares: list[dict[Values, float]] = []
        for parts in suspects:
            pull = {part: explained[part] ** 2 * (_PAIR if len(part) > 1 else 1.0) for part in parts}
            self._shares.append({part: weight / sum(pull.values()) for part, weight in pull.items()})

    def risk(self, config: Config) -> float:
        """The worst failure's chance to strike again, and that of values nobody tried."""
        if any(part <= config.items() for part in self._stated):
            return _STATED
        doubtful = {part for part in values_and_pairs(config) if part not in self._innocent}
        untried = math.prod(1 - self._unknown[part[0][0]] for part in doubtful if len(part) == 1)
        blamed = (sum(share for part, share in shares.items() if part in doubtful) for shares in self._shares)
        return 1 - untried * (1 - min(max(blamed, default=0.0), _STATED))

    def _suspects(self, point: Point) -> list[Values]:
        parts = [part for part in values_and_pairs(point.values) if part not in self._innocent]
        return [part for part in parts if all(name in point.named for name, _ in part)] or parts
