"""What the samples say: a low percentile, a filter for preempted turns, and the interval of a ratio."""

import torch

QUANTILE = 0.2
_RESAMPLES = 400
_PREEMPTED = 1.2
_SLACK_US = 30.0
_FEWEST = 3

Pairs = tuple[list[float], list[float]]
"""Wall and CPU time, per round."""


def low(samples: list[float]) -> float:
    """The 20th percentile: steady against preemption, and not the luckiest sample."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(QUANTILE))


def middle(samples: list[float]) -> float:
    """The median."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(0.5))


def calm(wall: float, cpu: float) -> bool:
    """Whether a sample was not preempted: wall time much above CPU time says that it was."""
    return wall <= cpu * _PREEMPTED + _SLACK_US


def undisturbed(wall: list[float], cpu: list[float]) -> list[bool]:
    """Which samples were not preempted. All of them, where few would be left."""
    keep = [calm(w, c) for w, c in zip(wall, cpu, strict=True)]
    return keep if sum(keep) >= min(_FEWEST, len(keep)) else [True] * len(keep)


def pick(samples: list[float], keep: list[bool]) -> list[float]:
    """Those to keep."""
    return [sample for sample, kept in zip(samples, keep, strict=True) if kept]


def ratio_logs(other: Pairs, own: Pairs, generator: torch.Generator) -> torch.Tensor:
    """Bootstrap of log(low(other) / low(own)) over rounds in which both were timed side by side, undisturbed."""
    both = min(len(other[0]), len(own[0]))
    masks = [undisturbed(wall[-both:], cpu[-both:]) for wall, cpu in (other, own)]
    keep = [all(pair) for pair in zip(*masks, strict=True)]
    keep = keep if sum(keep) >= min(_FEWEST, both) else [True] * both
    rows = torch.tensor([pick(wall[-both:], keep) for wall, _ in (other, own)], dtype=torch.float64)
    count = rows.shape[1]
    draws = torch.randint(count, (_RESAMPLES, count), generator=generator)
    lows = rows[:, draws].quantile(QUANTILE, dim=2)
    return (lows[0] / lows[1]).log()


def interval(logs: list[torch.Tensor]) -> tuple[float, float]:
    """The middle 95 % of the geometric mean over the cases."""
    mean = torch.stack(logs).mean(dim=0)
    return float(mean.quantile(0.025).exp()), float(mean.quantile(0.975).exp())
