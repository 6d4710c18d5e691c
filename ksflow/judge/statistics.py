"""What the samples say: a low mean with its interval, a filter for preempted batches, the interval of a ratio.

The low mean is that of the faster half without its fastest tenth. On a shared machine it varies less than any single
percentile (and far less than the minimum), and nothing that slows a part of the calls reaches it.
"""

import math

import torch

LOW, MIDDLE = (0.1, 0.5), (0.3, 0.7)
"""Parts of the sorted samples: what a noisy machine is asked for, and a quiet one."""
_RESAMPLES = 400
_MOST_RESAMPLED = 64
_BLOCKS = 32
_PREEMPTED = 1.2
_SLACK_US = 30.0
_FEWEST = 3
_STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}
_MANY = 2.31
"""Student's t for 95 %, by how many values there are; and for nine or more."""
_UNKNOWN = math.log(2)
"""How far off, as a logarithm, a single sample is taken to be."""


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


def pick(samples: list[float], keep: list[bool]) -> list[float]:
    """Those to keep; all of them, where few would be left."""
    few = sum(keep) < min(_FEWEST, len(keep))
    return list(samples) if few else [sample for sample, kept in zip(samples, keep, strict=True) if kept]


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


def interval(logs: list[torch.Tensor]) -> tuple[float, float]:
    """The middle 95 % of the geometric mean over cases and replicates, each of which has draws of its logarithm.

    A replicate with one sample has nothing to draw from: then it counts how far the replicates are apart (Student's t).
    """
    each = torch.stack(logs)
    mean = each.mean(dim=0)
    low, high = float(mean.quantile(0.025)), float(mean.quantile(0.975))
    if bool((each.amin(dim=1) == each.amax(dim=1)).any()):
        centers, count = each.mean(dim=1), len(each)
        student = _STUDENT.get(count, _MANY)
        half = student * float(centers.std()) / math.sqrt(count) if count > 1 else _UNKNOWN
        middle = float(mean.mean())
        low, high = min(low, middle - half), max(high, middle + half)
    return math.exp(low), math.exp(high)


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
    return torch.randint(count, (_RESAMPLES, count), generator=generator)
