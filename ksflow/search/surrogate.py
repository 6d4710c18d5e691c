"""What the measurements say of configurations that were not measured: the catalogue's guess, corrected by evidence.

The logarithm of the time is a sum of what each tunable is worth and of what pairs of them are worth together (a
Gaussian process with an additive kernel). Before anything is measured, it is the catalogue's guess; every judged
kernel moves it, most for configurations like it. It is not a model of hardware, and knows nothing of other families.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksflow.search.catalogue import Kind
from ksflow.search.failure_model import FailureModel
from ksflow.search.space import remembered
from ksflow.source.families import Config, Space

Floats = NDArray[Any]

_NOISES = (0.02, 0.05, 0.15)  # of the logarithm of a time; the likeliest is taken
_MEMORY = 150  # points
_WEIGHTS = (0.2, 0.5, 1.0, 2.0)
_OFFSET = 3.0  # how little is known of the absolute time: deviation of its logarithm
_REACH = 1.5  # options over which ordered values stop resembling each other
_COUPLING = 0.3  # what pairs are worth, against single tunables


@dataclass(frozen=True)
class Forecast:
    """The logarithm of the gain over the base: its mean and standard deviation, and the chance to fail."""

    mean: float
    deviation: float
    risk: float
    ignorance: float
    """The share of the catalogue's uncertainty that is left: 1 when only the base was measured."""


class SurrogateModel:
    """Fitted once per round to the family's points, of which at least one was accepted: the base."""

    def __init__(self, space: Space, kinds: Sequence[Kind]) -> None:
        self._space = space
        self._index = [{option: i for i, option in enumerate(t.options)} for t in space.tunables]
        self._alike: list[Floats] = []  # for each tunable, how much its values resemble each other
        for tunable, kind in zip(space.tunables, kinds, strict=True):
            apart = np.abs(np.subtract.outer(*[np.arange(len(tunable.options))] * 2))
            self._alike.append(np.exp(-apart / _REACH) if kind.ordered else (apart == 0).astype(float))
        ranges = [[math.log1p(value / 100) for value in kind.worth_percent] for kind in kinds]
        self._worth = [(low + high) / 2 for low, high in ranges]
        self._spread = [max((high - low) / 2, 0.02) for low, high in ranges]
        self._weight = [1.0] * len(ranges)
        unknown = {t.name: k.risk_percent / 100 for t, k in zip(space.tunables, kinds, strict=True)}
        self._failures = FailureModel(space.points, unknown)
        known = remembered([point for point in space.points if point.score_us], _MEMORY)
        self._seen = [(point.values, math.log(point.score_us)) for point in known if point.score_us]
        self._encode_seen()
        self._fit_noise_and_weights()

    def forecast(self, configs: Sequence[Config]) -> list[Forecast]:
        """What to expect of each of `configs`, against the base."""
        if not configs:
            return []
        base, _ = self._predict([self._space.base])
        mean, variance = self._predict(configs)
        gains, deviations = base[0] - mean, np.sqrt(variance)
        codes, here = self._encode(configs), self._encode([self._space.base])
        apart = 2 * (self._prior + _OFFSET**2 - self._covariance(self._compare(codes, here))[:, 0])
        ignorance = np.minimum(variance / np.maximum(apart, self._noise**2), 1.0)
        return [
            Forecast(float(g), float(d), self._failures.risk(c), float(i))
            for g, d, c, i in zip(gains, deviations, configs, ignorance, strict=True)
        ]

    def assume_measured(self, config: Config) -> None:
        """Go on as if `config` had been measured as expected, so that the next one tells more."""
        mean, _ = self._predict([config])
        self._seen.append((config, float(mean[0])))
        self._failures.assume_failed(config)
        self._encode_seen()
        self._fit()

    def _fit_noise_and_weights(self) -> None:
        """Take the noise, then for each tunable the weight, that make the measurements most likely."""

        def fitted() -> float:
            """Logarithm of how likely the measurements are, less a penalty for odd weights."""
            self._fit()
            return self._likelihood - sum(math.log(weight) ** 2 for weight in self._weight) / 2

        evidence = []
        for self._noise in _NOISES:
            evidence.append((fitted(), -self._noise))
        best, noise = max(evidence)
        self._noise = -noise
        for column in (*range(len(self._weight)), *range(len(self._weight))):
            for weight in _WEIGHTS:
                before = self._weight[column]
                if weight == before:
                    continue
                self._weight[column] = weight
                if (now := fitted()) > best + 1e-9:
                    best = now
                else:
                    self._weight[column] = before
        self._fit()

    def _encode_seen(self) -> None:
        self._codes = self._encode([config for config, _ in self._seen])
        self._times = np.array([time for _, time in self._seen])
        self._alikes = self._compare(self._codes, self._codes)

    def _fit(self) -> None:
        residual = self._times - self._expected(self._codes)
        self._center = float(residual.mean())
        self._residual = residual - self._center
        self._gram = self._covariance(self._alikes) + self._noise**2 * np.eye(len(residual))
        factor = np.linalg.cholesky(self._gram)
        half = _solve_lower(factor, self._residual)
        self._likelihood = float(-0.5 * half @ half - np.log(np.diag(factor)).sum())
        self._inverse: Floats | None = None
        self._prior = float(self._gram[0, 0]) - self._noise**2 - _OFFSET**2

    def _predict(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Mean and variance of the logarithm of the time."""
        codes = self._encode(configs)
        cross = self._covariance(self._compare(codes, self._codes))
        if self._inverse is None:
            self._inverse = np.linalg.inv(self._gram)
        reach = cross @ self._inverse
        mean = self._expected(codes) + self._center + reach @ self._residual
        return mean, np.maximum(self._prior + _OFFSET**2 - (reach * cross).sum(1), self._noise**2)

    def _encode(self, configs: Iterable[Config]) -> Floats:
        """A row for each configuration, a column for each tunable: the places of its values among the options."""
        names = [t.name for t in self._space.tunables]
        rows = [[i[config[n]] for n, i in zip(names, self._index, strict=True)] for config in configs]
        return np.array(rows, dtype=int).reshape(-1, len(names))

    def _expected(self, codes: Floats) -> Floats:
        """The catalogue's guess: each step towards a tunable's last value is worth its share."""
        total = np.zeros(len(codes))
        for column, index in enumerate(self._index):
            share = self._worth[column] * min(self._weight[column], 1.0)
            total -= share * codes[:, column] / max(len(index) - 1, 1)
        return total

    def _compare(self, left: Floats, right: Floats) -> list[Floats]:
        """For each tunable, how alike its values are, pair by pair."""
        return [alike[left[:, i][:, None], right[:, i][None, :]] for i, alike in enumerate(self._alike)]

    def _covariance(self, alikes: list[Floats]) -> Floats:
        """How much two configurations have in common: tunable by tunable, and in pairs."""
        scales = [(weight * spread) ** 2 for weight, spread in zip(self._weight, self._spread, strict=True)]
        parts = [scale * alike for scale, alike in zip(scales, alikes, strict=True)]
        singles: Floats = np.sum(parts, axis=0)
        squares: Floats = np.sum([part**2 for part in parts], axis=0)
        covariance: Floats = singles + _COUPLING * (singles**2 - squares) / sum(scales) + _OFFSET**2
        return covariance


def _solve_lower(factor: Floats, right: Floats) -> Floats:
    """Solve a lower triangular system. Row by row: LAPACK starts threads for it, which cost more than they save."""
    solved = np.zeros(len(right))
    for row in range(len(right)):
        solved[row] = (right[row] - factor[row, :row] @ solved[:row]) / factor[row, row]
    return solved
