"""What the measurements say of configurations that were not measured: the catalogue's guess, corrected by evidence.

The logarithm of the time is a sum of what each tunable is worth and of what pairs of them are worth together (a
Gaussian process with an additive kernel). Before anything is measured, it is the catalogue's guess; every judged
kernel moves it, most for configurations like it. It is not a model of hardware, and knows nothing of other families.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ksflow.search.blame import Blame
from ksflow.search.catalogue import Kind
from ksflow.source.families import Config, Point, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

NOISES = (0.02, 0.05, 0.15)  # of the logarithm of a time; the likeliest is taken
MEMORY = 150  # points
WEIGHTS = (0.2, 0.5, 1.0, 2.0)
_OFFSET = 3.0  # how little is known of the absolute time: deviation of its logarithm
_REACH = 1.5  # options over which ordered values stop resembling each other
_COUPLING = 0.3  # what pairs are worth, against single tunables


@dataclass(frozen=True)
class Guess:
    """The logarithm of the gain over the base: its mean and standard deviation, and the chance to fail."""

    mean: float
    deviation: float
    risk: float
    ignorance: float
    """The share of the catalogue's uncertainty that is left: 1 when only the base was measured."""


class Belief:
    """Fitted once per round to the family's points, of which at least one was accepted: the base."""

    def __init__(self, around: Space, kinds: Sequence[Kind]) -> None:
        self._space = around
        self._index = [{o: i for i, o in enumerate(t.options)} for t in around.tunables]
        self._alike = [_alike(len(t.options), k.ordered) for t, k in zip(around.tunables, kinds, strict=True)]
        worth = [_log_range(kind.worth_percent) for kind in kinds]
        self._worth = [mean for mean, _ in worth]
        self._spread = [spread for _, spread in worth]
        self._weight = [1.0] * len(worth)
        unknown = {t.name: k.risk_percent / 100 for t, k in zip(around.tunables, kinds, strict=True)}
        self._noise = NOISES[0]
        self._blame = Blame(around.points, unknown)
        self._seen = [(p.values, math.log(p.score_us)) for p in _recent(around.points) if p.score_us]
        self._observe()
        self._weigh()

    def guess(self, configs: Sequence[Config]) -> list[Guess]:
        """What to expect of each of `configs`, against the base."""
        import numpy as np

        if not configs:
            return []
        base, _ = self._predict([self._space.base])
        mean, variance = self._predict(configs)
        gains, deviations = base[0] - mean, np.sqrt(variance)
        codes, here = self._encode(configs), self._encode([self._space.base])
        apart = 2 * (self._prior + _OFFSET**2 - self._covariance(self._compare(codes, here))[:, 0])
        ignorance = np.minimum(variance / np.maximum(apart, self._noise**2), 1.0)
        return [
            Guess(float(g), float(d), self._blame.risk(c), float(i))
            for g, d, c, i in zip(gains, deviations, configs, ignorance, strict=True)
        ]

    def suppose(self, config: Config) -> None:
        """Go on as if `config` had been measured as expected, so that the next one tells more."""
        mean, _ = self._predict([config])
        self._seen.append((config, float(mean[0])))
        self._blame.suppose(config)
        self._observe()
        self._fit()

    def _weigh(self) -> None:
        """How much each tunable matters here, by what makes the measurements most likely."""
        evidence = []
        for self._noise in NOISES:
            self._fit()
            evidence.append((self._evidence(), -self._noise))
        best, noise = max(evidence)
        self._noise = -noise
        for _ in range(2):
            for column in range(len(self._weight)):
                for weight in WEIGHTS:
                    before = self._weight[column]
                    if weight == before:
                        continue
                    self._weight[column] = weight
                    self._fit()
                    if self._evidence() > best + 1e-9:
                        best = self._evidence()
                    else:
                        self._weight[column] = before
        self._fit()

    def _evidence(self) -> float:
        """Logarithm of how likely the measurements are, less a penalty for odd weights."""
        odd = sum(math.log(weight) ** 2 for weight in self._weight)
        return self._likelihood - odd / 2

    def _observe(self) -> None:
        import numpy as np

        self._codes = self._encode([config for config, _ in self._seen])
        self._times = np.array([time for _, time in self._seen])
        self._alikes = self._compare(self._codes, self._codes)

    def _fit(self) -> None:
        import numpy as np

        residual = self._times - self._expected(self._codes)
        self._center = float(residual.mean())
        residual = residual - self._center
        gram = self._covariance(self._alikes) + self._noise**2 * np.eye(len(residual))
        factor = np.linalg.cholesky(gram)
        half = _forward(factor, residual)
        self._likelihood = float(-0.5 * half @ half - np.log(np.diag(factor)).sum())
        self._residual, self._gram = residual, gram
        self._inverse: Floats | None = None
        self._prior = float(gram[0, 0]) - self._noise**2 - _OFFSET**2

    def _predict(self, configs: Sequence[Config]) -> tuple["Floats", "Floats"]:
        """Mean and variance of the logarithm of the time."""
        import numpy as np

        codes = self._encode(configs)
        cross = self._covariance(self._compare(codes, self._codes))
        if self._inverse is None:
            self._inverse = np.linalg.inv(self._gram)
        reach = cross @ self._inverse
        mean = self._expected(codes) + self._center + reach @ self._residual
        known = (reach * cross).sum(1)
        return mean, np.maximum(self._prior + _OFFSET**2 - known, self._noise**2)

    def _encode(self, configs: Iterable[Config]) -> "Floats":
        import numpy as np

        names = [t.name for t in self._space.tunables]
        rows = [[i[config[n]] for n, i in zip(names, self._index, strict=True)] for config in configs]
        return np.array(rows, dtype=int).reshape(-1, len(names))

    def _expected(self, codes: "Floats") -> "Floats":
        """The catalogue's guess: each step towards a tunable's last value is worth its share."""
        import numpy as np

        total = np.zeros(len(codes))
        for column, index in enumerate(self._index):
            share = self._worth[column] * min(self._weight[column], 1.0)
            total -= share * codes[:, column] / max(len(index) - 1, 1)
        return total

    def _compare(self, left: "Floats", right: "Floats") -> list["Floats"]:
        """For each tunable, how alike its values are, pair by pair."""
        return [alike[left[:, i][:, None], right[:, i][None, :]] for i, alike in enumerate(self._alike)]

    def _covariance(self, alikes: list["Floats"]) -> "Floats":
        """How much two configurations have in common: tunable by tunable, and in pairs."""
        import numpy as np

        scales = [(weight * spread) ** 2 for weight, spread in zip(self._weight, self._spread, strict=True)]
        parts = [scale * alike for scale, alike in zip(scales, alikes, strict=True)]
        singles: Floats = np.sum(parts, axis=0)
        squares: Floats = np.sum([part**2 for part in parts], axis=0)
        covariance: Floats = singles + _COUPLING * (singles**2 - squares) / sum(scales) + _OFFSET**2
        return covariance


def _forward(factor: "Floats", right: "Floats") -> "Floats":
    """Solve a lower triangular system. Row by row: LAPACK starts threads for it, which cost more than they save."""
    import numpy as np

    solved = np.zeros(len(right))
    for row in range(len(right)):
        solved[row] = (right[row] - factor[row, :row] @ solved[:row]) / factor[row, row]
    return solved


def _alike(count: int, ordered: bool) -> "Floats":
    """How much a tunable's values resemble each other."""
    import numpy as np

    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    return np.exp(-apart / _REACH) if ordered else (apart == 0).astype(float)


def _log_range(percent: tuple[float, float]) -> tuple[float, float]:
    """Mean and standard deviation of the log gain that a range in percent stands for."""
    lowest, highest = (math.log1p(value / 100) for value in percent)
    return (lowest + highest) / 2, max((highest - lowest) / 2, 0.02)


def _recent(points: Sequence[Point]) -> list[Point]:
    """What is remembered of a long run: the best and the newest."""
    accepted = [point for point in points if point.score_us]
    best = sorted(accepted, key=lambda point: point.score_us or 0.0)[: MEMORY // 3]
    kept = {point.id for point in [*best, *accepted[-(MEMORY - len(best)) :]]}
    return [point for point in accepted if point.id in kept]
