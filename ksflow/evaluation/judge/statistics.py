"""Statistics of samples: a low mean with its interval, a filter for preempted batches, ratios over replicates.

The low mean is that of the faster half without its fastest tenth. On a shared machine it varies less than any single
percentile (and far less than the minimum), and slow outliers do not affect it. So it is not the average cost of a call:
a kernel may do in one call the work of several. The mean over all calls (`mean_log`) checks that.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch

LOW, MIDDLE = (0.1, 0.5), (0.3, 0.7)
"""Parts of the sorted samples that are averaged: on a noisy machine, and on a quiet one."""
_RESAMPLES = 400
_MOST_RESAMPLED = 64
_BLOCKS = 32
_BLOCK = 4  # rounds that are resampled together: two pairs of both orders; fewer if there are few
_COMMON = 0.98  # quantile of the samples at which they are capped: single ones beyond it are outliers
_PREEMPTED = 1.2
_SLACK_US = 30.0
_FEWEST = 3
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36)
_ONE_SIDED = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89)
"""Student's t for 1, 2, 3, ... degrees of freedom: two-sided 95 %, and one-sided 95 %. Beyond the tables it is
approximated from the normal distribution."""
UNKNOWN = math.log(2)  # error assumed for a single sample, as a logarithm
SPREAD, SPREAD_ON_DEVICE = 0.02, 0.01
"""Prior standard deviation of the logarithm between replicates. On a CPU kernels of 0.6 ms show 0.8 to 1.6 % (two cores
of an AMD EPYC); the GPU's value is twice what 1,039 claims of published runs on an H100 and an H200 show between a
first comparison and its confirmation."""
_SPREAD_FREE = 6  # degrees of freedom of that prior
_NORMAL, _NORMAL_BELOW = 1.96, 1.645
_TINY = 1e-10
_TELLING = 3  # degrees of freedom from which on the interval ignores the prior


def low_mean(samples: list[float], window: tuple[float, float] = LOW) -> float:
    """Return the mean of a window of the sorted samples, by default the low mean."""
    return float(_low(torch.tensor(samples, dtype=torch.float64), window))


def median(samples: list[float]) -> float:
    return quantile(samples, 0.5)


def quantile(samples: list[float], share: float) -> float:
    return float(torch.tensor(samples, dtype=torch.float64).quantile(share))


def is_undisturbed(wall: float, cpu: float) -> bool:
    """Return whether a sample was not preempted: wall time not much above CPU time."""
    return wall <= cpu * _PREEMPTED + _SLACK_US


def are_too_few(keep: list[bool]) -> bool:
    """Return whether too few samples are kept for a result."""
    return sum(keep) < min(_FEWEST, len(keep))


def pick(samples: list[float], keep: list[bool]) -> list[float]:
    """Return the samples to keep, or all of them if few would be left."""
    few = are_too_few(keep)
    return [sample for sample, wanted in zip(samples, keep, strict=True) if wanted or few]


def low_interval(
    samples: list[float], generator: torch.Generator, window: tuple[float, float] = LOW
) -> tuple[float, float]:
    """Return the 95 % interval of the low mean."""
    row = torch.tensor(samples, dtype=torch.float64)
    if len(samples) > _MOST_RESAMPLED:
        lows = _low(row, window) + _error(_influence(row, window)) * _normal(generator)
    else:
        lows = _low(row[_draws(len(samples), generator)], window)
    return float(lows.quantile(0.025)), float(lows.quantile(0.975))


def ratio_logs(
    other: list[float], own: list[float], keep: list[bool], generator: torch.Generator, window: tuple[float, float]
) -> torch.Tensor:
    """Return draws of log(low(other) / low(own)) over the rounds to keep, both timed on the same contents: a
    bootstrap of the rounds; for many rounds its normal approximation, which costs less."""
    rows = torch.tensor([pick(samples, keep) for samples in (other, own)], dtype=torch.float64)
    if rows.shape[1] > _MOST_RESAMPLED:
        lows = _low(rows, window)
        shares = [_influence(row, window) / low for row, low in zip(rows, lows, strict=True)]
        return (lows[0] / lows[1]).log() + _error(shares[0] - shares[1]) * _normal(generator)
    lows = _low(rows[:, _draws(rows.shape[1], generator)], window)
    return (lows[0] / lows[1]).log()


def cap(rows: list[list[float]]) -> float:
    """Return the largest multiple of its row's median that a sample may count as; the same for all rows."""
    parts = [torch.tensor(row, dtype=torch.float64) for row in rows]
    return float(torch.cat([part / part.median() for part in parts]).quantile(_COMMON))


def mean_log(other: list[float], own: list[float], most: float) -> tuple[float, float]:
    """Return log(mean(other) / mean(own)) over all rounds, and its variance. Samples are capped at `most` times the
    median of their row."""
    rows = torch.tensor([other, own], dtype=torch.float64)
    rows = rows.minimum(most * rows.median(dim=1, keepdim=True).values)
    means = rows.mean(dim=1)
    moves = rows[0] / means[0] - rows[1] / means[1]
    if len(own) > 3:  # both orders of a pair of rounds together
        moves = moves[: len(own) // 2 * 2].view(-1, 2).mean(dim=1)
    variance = float(moves.var() / len(moves)) if len(moves) > 1 else UNKNOWN**2
    return float((means[0] / means[1]).log()), variance


@dataclass(frozen=True)
class RandomEffects:
    """The combined estimate of replicates that may vary by more than their own errors."""

    mean: float
    error: float  # standard error of `mean`
    free: float  # degrees of freedom
    tau: float  # standard deviation between replicates
    p: float  # p value of replicates so far apart under a common mean (Cochran's Q); 1 for a single one
    foreseen: float = 0.0
    """The standard error to expect of so many replicates, from their own errors and the prior spread."""
    values: tuple[float, ...] = ()  # the replicates'

    @property
    def half(self) -> float:
        """Half of the 95 % interval of `mean`. Two or three replicates that agree by chance do not make it narrower
        than the prior. If the moderated interval contains 0, so that nothing is claimed, that one counts."""
        half = self.error * _student(self.free, _STUDENT, _NORMAL)
        if self.free >= _TELLING:
            return half
        half, told = max(half, self.foreseen * _NORMAL), self.with_prior
        moderated = half if told is self else min(half, told.half)
        return moderated if abs(self.mean) < moderated else half

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    @property
    def with_prior(self) -> "RandomEffects":
        """The same with the prior as a part of the variance (a moderated t: Smyth 2004); unchanged if the standard
        error exceeds twice the foreseen one. Used for stopping and for ties, never for a claim."""
        if self.error > 2 * self.foreseen:
            return self
        free = self.free if math.isfinite(self.free) else 0.0
        variance = (_SPREAD_FREE * self.foreseen**2 + free * self.error**2) / (_SPREAD_FREE + free)
        return replace(self, error=math.sqrt(variance), free=_SPREAD_FREE + free)

    @property
    def reach(self) -> float:
        """The upper end of the one-sided 95 % interval, moderated or not, whichever is lower."""
        halves = (each.error * _student(each.free, _ONE_SIDED, _NORMAL_BELOW) for each in (self, self.with_prior))
        return self.mean + min(halves)

    def chance(self, done: int, most: int, least: float) -> float:
        """Return the probability that the interval of `most` replicates is above `least`, given `done` of them."""
        told = self.with_prior
        error = max(told.error, _TINY) * math.sqrt(done / most)
        moves = max(told.error, _TINY) * math.sqrt(max(1 - done / most, 0.0))
        return NormalDist().cdf((self.mean - error * _NORMAL - least) / max(moves, _TINY))

    def with_control(self, control: "RandomEffects") -> "RandomEffects":
        """Return the same with the difference of one kernel from itself, in the same comparison, as a variance
        component (the derivation is in docs/trust.md). A control that is within its own error changes nothing."""
        own, between = self.error**2, max(0.0, control.mean**2 - control.error**2)
        if not between:
            return self
        free = (own + between) ** 2 / (own**2 / self.free + between**2)
        foreseen = math.sqrt(self.foreseen**2 + between)
        return replace(self, error=math.sqrt(own + between), free=free, foreseen=foreseen)


def random_effects(values: list[float], variances: list[float], spread: float = SPREAD) -> RandomEffects:
    """Return the combined mean of replicates, each with the variance of its own error: the random-effects model of
    docs/trust.md. For a single replicate the standard deviation between replicates is taken to be `spread`."""
    count = len(values)
    if count == 1:
        error = math.hypot(spread, math.sqrt(variances[0]))
        return RandomEffects(values[0], error, math.inf, spread, 1.0, error, tuple(values))
    y, own = torch.tensor(values, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64).clamp(min=_TINY)
    fixed = 1 / own
    q = float((fixed * (y - (fixed * y).sum() / fixed.sum()) ** 2).sum())
    tau2 = max(0.0, (q - (count - 1)) / float(fixed.sum() - (fixed**2).sum() / fixed.sum()))
    weights = 1 / (own + tau2)
    mean = float((weights * y).sum() / weights.sum())
    scale = float((weights * (y - mean) ** 2).sum()) / (count - 1)
    error = math.sqrt(max(scale, 1.0) / float(weights.sum()))
    p = torch.special.gammaincc(torch.tensor((count - 1) / 2.0), torch.tensor(q / 2))
    foreseen = math.sqrt(1 / float(fixed.sum()) + spread**2 / count)
    return RandomEffects(mean, error, count - 1, math.sqrt(tau2), float(p), foreseen, tuple(values))


def _student(free: float, table: tuple[float, ...], z: float) -> float:
    """Return Student's t for fractional degrees of freedom, beyond the table by the expansion of Cornish and Fisher,
    which is off by less than 0.01 from eight on."""

    def whole(count: int) -> float:
        if count <= len(table):
            return table[count - 1]
        return z + (z**3 + z) / (4 * count) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * count**2)

    if math.isinf(free):
        return z
    below = max(int(free), 1)
    share = (1 / below - 1 / max(free, 1.0)) * below * (below + 1)
    return math.exp((1 - share) * math.log(whole(below)) + share * math.log(whole(below + 1)))


def _low(samples: torch.Tensor, window: tuple[float, float]) -> torch.Tensor:
    count = samples.shape[-1]
    first = int(window[0] * count)
    return samples.sort(dim=-1).values[..., first : max(math.ceil(window[1] * count), first + 1)].mean(dim=-1)


def _influence(row: torch.Tensor, window: tuple[float, float]) -> torch.Tensor:
    """Return how far each sample moves the mean of a window; samples outside count as if at its edge."""
    edges = row.quantile(torch.tensor(window, dtype=torch.float64))
    inside = row.clamp(edges[0], edges[1])
    return (inside - inside.mean()) / (window[1] - window[0])


def _error(influence: torch.Tensor) -> torch.Tensor:
    """Return the standard error from samples' influences, by blocks of neighbours, which may be correlated."""
    means = torch.stack([part.mean() for part in influence.tensor_split(_BLOCKS)])
    return means.std() / math.sqrt(_BLOCKS)


def _normal(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(_RESAMPLES, generator=generator, dtype=torch.float64)


def _draws(count: int, generator: torch.Generator) -> torch.Tensor:
    block = max(min(_BLOCK, count // 4), 1)
    starts = torch.randint(count, (_RESAMPLES, -(-count // block), 1), generator=generator)
    return ((starts + torch.arange(block)) % count).flatten(1)[:, :count]
