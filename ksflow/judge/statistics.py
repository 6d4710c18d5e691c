"""What the samples say: a low mean with its interval, a filter for preempted batches, ratios with what lies between
replicates.

The low mean is that of the faster half without its fastest tenth. On a shared machine it varies less than any single
percentile (and far less than the minimum), and nothing that slows a part of the calls reaches it. So it is not what a
call costs on average: a kernel may do in one call the work of several. The mean over all calls (`mean_log`) is the
check on that.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch

LOW, MIDDLE = (0.1, 0.5), (0.3, 0.7)
"""Parts of the sorted samples: what a noisy machine is asked for, and a quiet one."""
_RESAMPLES = 400
_MOST_RESAMPLED = 64
_BLOCKS = 32
_BLOCK = 4
"""Rounds that are resampled together, two orders and what they have in common with the next two; fewer of few."""
_COMMON = 0.98
"""Of all samples this share is at most as far above the usual one as counts: single ones may be anybody's."""
_PREEMPTED = 1.2
_SLACK_US = 30.0
_FEWEST = 3
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36)
_ONE_SIDED = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89)
"""Student's t for 1, 2, 3, ... degrees of freedom: for 95 % around, and for 95 % below. For more degrees of freedom it
is near that of the normal distribution."""
UNKNOWN = math.log(2)
"""How far off, as a logarithm, a single sample is taken to be."""
SPREAD, SPREAD_ON_DEVICE = 0.02, 0.01
"""What replicates are taken to differ by before they were seen, as a standard deviation of logarithms: on a CPU kernels
of 0.6 ms show 0.8 to 1.6 % (two cores of an AMD EPYC); on a GPU this is twice what 1,039 claims of published runs on an
H100 and an H200 show between a first comparison and the one that confirmed it."""
_SPREAD_FREE = 6
"""So many degrees of freedom that is worth beside what replicates themselves say."""
_NORMAL, _NORMAL_BELOW = 1.96, 1.645
_TINY = 1e-10
_TELLING = 3
"""Degrees of freedom from which on an interval rests on what the replicates say alone."""


def low(samples: list[float], window: tuple[float, float] = LOW) -> float:
    """The low mean, or that of another part."""
    return float(_low(torch.tensor(samples, dtype=torch.float64), window))


def middle(samples: list[float]) -> float:
    """The median."""
    return quantile(samples, 0.5)


def quantile(samples: list[float], share: float) -> float:
    """What this share of the samples does not exceed."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(share))


def undisturbed(wall: float, cpu: float) -> bool:
    """Whether a sample was not preempted: wall time much above CPU time says that it was."""
    return wall <= cpu * _PREEMPTED + _SLACK_US


def few(keep: list[bool]) -> bool:
    """Whether so few samples are to be kept that they are no reading."""
    return sum(keep) < min(_FEWEST, len(keep))


def pick(samples: list[float], keep: list[bool]) -> list[float]:
    """Those to keep; all of them, where few would be left."""
    return list(samples) if few(keep) else [sample for sample, wanted in zip(samples, keep, strict=True) if wanted]


def low_interval(
    samples: list[float], generator: torch.Generator, window: tuple[float, float] = LOW
) -> tuple[float, float]:
    """The middle 95 % of the low mean."""
    row = torch.tensor(samples, dtype=torch.float64)
    if len(samples) > _MOST_RESAMPLED:
        lows = _low(row, window) + _error(_influence(row, window)) * _normal(generator)
    else:
        lows = _low(row[_draws(len(samples), generator)], window)
    return float(lows.quantile(0.025)), float(lows.quantile(0.975))


def ratio_logs(
    other: list[float],
    own: list[float],
    keep: list[bool],
    generator: torch.Generator,
    window: tuple[float, float] = LOW,
) -> torch.Tensor:
    """Draws of log(low(other) / low(own)) over the rounds to keep. Both were timed on the same contents.

    A bootstrap of the rounds; where there are many, the normal distribution that it comes to, which costs less.
    """
    rows = torch.tensor([pick(samples, keep) for samples in (other, own)], dtype=torch.float64)
    if rows.shape[1] > _MOST_RESAMPLED:
        lows = _low(rows, window)
        shares = [_influence(row, window) / low for row, low in zip(rows, lows, strict=True)]
        return (lows[0] / lows[1]).log() + _error(shares[0] - shares[1]) * _normal(generator)
    lows = _low(rows[:, _draws(rows.shape[1], generator)], window)
    return (lows[0] / lows[1]).log()


def cap(rows: list[list[float]]) -> float:
    """How many times its row's median a sample counts at most; the same for all rows."""
    parts = [torch.tensor(row, dtype=torch.float64) for row in rows]
    return float(torch.cat([part / part.median() for part in parts]).quantile(_COMMON))


def mean_log(other: list[float], own: list[float], most: float) -> tuple[float, float]:
    """log(mean(other) / mean(own)) over all rounds, and its variance. No sample counts as more than `most` times the
    median of its row."""
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
    """What replicates that differ by more than their own errors explain say together."""

    mean: float
    error: float
    """The standard error of `mean`."""
    free: float
    """The degrees of freedom with which that is known."""
    tau: float
    """The standard deviation of what lies between replicates."""
    p: float
    """How likely values so far apart would be if nothing did (Cochran's Q); 1 for a single one."""
    foreseen: float = 0.0
    """The standard error that so many replicates were to have, by their own errors and by `SPREAD`."""

    @property
    def half(self) -> float:
        """Half of the 95 % interval of `mean`. Two or three replicates that agree by chance make it no narrower than
        was to be foreseen; where the moderated interval holds 0, so that nothing is claimed, it is that one."""
        half = self.error * _student(self.free, _STUDENT, _NORMAL)
        if self.free >= _TELLING:
            return half
        half, told = max(half, self.foreseen * _NORMAL), self.moderated
        moderated = half if told is self else min(half, told.half)
        return moderated if abs(self.mean) < moderated else half

    @property
    def low(self) -> float:
        """The lower end of that interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end of that interval."""
        return self.mean + self.half

    @property
    def moderated(self) -> "RandomEffects":
        """The same with what was foreseen as a part of the variance, which few replicates tell little of (a moderated
        t: Smyth 2004); itself where they differ by more than twice as much. It decides how long to look and whether two
        kernels are alike; no claim."""
        if self.error > 2 * self.foreseen:
            return self
        free = self.free if math.isfinite(self.free) else 0.0
        variance = (_SPREAD_FREE * self.foreseen**2 + free * self.error**2) / (_SPREAD_FREE + free)
        return replace(self, error=math.sqrt(variance), free=_SPREAD_FREE + free)

    @property
    def reach(self) -> float:
        """What is exceeded with a probability of 5 % only: the upper end of the one-sided 95 % interval, by what the
        replicates say alone or moderated."""
        halves = (each.error * _student(each.free, _ONE_SIDED, _NORMAL_BELOW) for each in (self, self.moderated))
        return self.mean + min(halves)

    def chance(self, done: int, most: int, least: float) -> float:
        """How likely the interval of `most` replicates is above `least`, by what `done` of them say."""
        told = self.moderated
        error = max(told.error, _TINY) * math.sqrt(done / most)
        moves = max(told.error, _TINY) * math.sqrt(max(1 - done / most, 0.0))
        return NormalDist().cdf((self.mean - error * _NORMAL - least) / max(moves, _TINY))

    def beside(self, control: "RandomEffects") -> "RandomEffects":
        """The same, with what one kernel differs from itself in the same comparison as a component of the variance.

        The two kernels read m = d + b + e, one of them beside itself c = b' + e'. Here d is the difference; e and e'
        have the variances that follow from the replicates (V = error^2 with n degrees of freedom, V'); b and b' are
        what two kernels of one comparison differ by in all of its replicates, of one variance w. The mean of c^2 is
        w + V', so

            w = max(0, c^2 - V')                           one degree of freedom
            error^2 = V + w
            free = (V + w)^2 / (V^2 / n + w^2)             Satterthwaite 1946

        A control that is within its own error changes nothing.
        """
        own, between = self.error**2, max(0.0, control.mean**2 - control.error**2)
        if not between:
            return self
        free = (own + between) ** 2 / (own**2 / self.free + between**2)
        foreseen = math.sqrt(self.foreseen**2 + between)
        return replace(self, error=math.sqrt(own + between), free=free, foreseen=foreseen)


def random_effects(values: list[float], variances: list[float], spread: float = SPREAD) -> RandomEffects:
    """The mean of several replicates, each with the variance of its own error, with what lies between them.

    The random-effects model of meta-analysis: the variance between replicates by DerSimonian and Laird (1986), the
    interval by Hartung and Knapp (2001) with Student's t of one degree of freedom less than there are replicates, and
    no narrower than within-replicate errors make it (Roever, Knapp and Friede 2015). A single replicate tells nothing
    of what lies between: it is taken to be off by `spread`.
    """
    count = len(values)
    if count == 1:
        error = math.hypot(spread, math.sqrt(variances[0]))
        return RandomEffects(values[0], error, math.inf, spread, 1.0, error)
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
    return RandomEffects(mean, error, count - 1, math.sqrt(tau2), float(p), foreseen)


def _student(free: float, table: tuple[float, ...], z: float) -> float:
    """By so many degrees of freedom, of which there may be a part. Of many by the expansion of Cornish and Fisher,
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
    """Along the last dimension."""
    count = samples.shape[-1]
    first = int(window[0] * count)
    return samples.sort(dim=-1).values[..., first : max(math.ceil(window[1] * count), first + 1)].mean(dim=-1)


def _influence(row: torch.Tensor, window: tuple[float, float]) -> torch.Tensor:
    """How far each sample moves the mean of a window: what lies outside counts as if it lay on the window's edge."""
    edges = row.quantile(torch.tensor(window, dtype=torch.float64))
    inside = row.clamp(edges[0], edges[1])
    return (inside - inside.mean()) / (window[1] - window[0])


def _error(influence: torch.Tensor) -> torch.Tensor:
    """The standard error that follows from what each sample does; those that follow each other may be alike."""
    means = torch.stack([part.mean() for part in influence.tensor_split(_BLOCKS)])
    return means.std() / math.sqrt(_BLOCKS)


def _normal(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(_RESAMPLES, generator=generator, dtype=torch.float64)


def _draws(count: int, generator: torch.Generator) -> torch.Tensor:
    """Samples to take, by their places: some that follow each other at a time, which may be alike."""
    block = max(min(_BLOCK, count // 4), 1)
    starts = torch.randint(count, (_RESAMPLES, -(-count // block), 1), generator=generator)
    return ((starts + torch.arange(block)) % count).flatten(1)[:, :count]
