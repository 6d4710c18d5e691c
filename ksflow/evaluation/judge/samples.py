"""Samples of one kernel, on one case in one replicate, net of overhead.

A batch is timed by the judge's wall clock and by the CPU time of the sandbox, from one freeze to the next. The times of
a null kernel's batch are subtracted from both. The CPU clock catches work on other threads and after the answer. It
also includes the operating system's work to stop a sandbox, which is some µs more for a kernel that has filled the
caches than for a null kernel. So the wall clock counts as long as the CPU time does not exceed it by more than
`_UNSEEN` and half of the cost of stopping a null kernel; beyond that the CPU time less this allowance counts, so that
similar kernels do not jump between the clocks. A kernel can hide in the allowance at most what makes a difference
(`RESOLVED`). On a busy machine a null batch may seem to take as long as the kernel's. A time never falls below `_LEAST`
of the batch. If it would (or fall below half of it, with few undisturbed batches), only the fastest null batch is
subtracted, and the time is in doubt. `most_us` is the time then: a disturbed machine only lengthens batches, so only
`most_us` may show that a time is impossible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.overhead import NullTimings
from ksflow.records.comparisons import RESOLVED

_LEAST_US = 0.01  # lower limit of a call's time
_LEAST = 0.03  # share of a batch below which a time cannot be told from the null batch
_UNSEEN = RESOLVED - 1
_ENOUGH = 5  # undisturbed batches, of the kernel and of the null kernel, from which on a time may be called impossible
_WALL = "wall: the judge's, one call a batch, less a null batch"
_CPU = "cpu: the sandbox's CPU time, which says more than the judge's wall clock; one call a batch, less a null batch"


@dataclass
class Samples:
    """Times per call in µs, one per round."""

    us: list[float] = field(default_factory=list)  # the times that count
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    """For each call, whether a CPU quota or, with several cores, other programs stopped it; empty if not recorded."""
    window: tuple[float, float] = statistics.LOW  # the ranked part of the sorted samples
    notes: dict[str, Any] = field(default_factory=dict)  # further facts for the record
    most_us: float | None = None  # the ranked time with only the fastest null batch subtracted; None if unknown
    enough: bool = True  # whether enough batches were undisturbed to call a time impossible
    doubt: str = ""  # why the samples cannot be ranked

    def add(self, wall_s: float, cpu_s: float) -> None:
        """Add one call, by its two clocks in seconds."""
        wall_us, cpu_us = (max(seconds * 1e6, _LEAST_US) for seconds in (wall_s, cpu_s))
        for row, value in ((self.wall, wall_us), (self.cpu, cpu_us), (self.us, max(wall_us, cpu_us))):
            row.append(value)

    def settle(self, stopping_us: float) -> None:
        """Choose one clock for all calls, of which the larger one has counted so far. stopping_us: of a null
        kernel's box."""
        low_wall, low_cpu = (
            statistics.low_mean(statistics.pick(row, self.undisturbed)) for row in (self.wall, self.cpu)
        )
        allowed = min(_UNSEEN * low_wall, stopping_us / 2)
        by_cpu = low_cpu > low_wall + allowed
        self.us = [max(us - allowed, _LEAST_US) for us in self.cpu] if by_cpu else list(self.wall)
        self.notes["clock"] = _CPU if by_cpu else _WALL

    def lift(self, batch_us: float, null_us: float) -> None:
        """Raise times that are implausibly small compared with the batch and the null batch, and set `doubt`."""
        least = _LEAST * batch_us
        if (low := self.low_mean()) < (least if self.enough else batch_us / 2):
            self.doubt = f"a call took {batch_us:.3g} µs, {null_us:.3g} of them in a null kernel: the rest is too short"
            shift = max(self.most_us or 0.0, least) - low
            self.us = [us + shift for us in self.us]

    @property
    def by_wall(self) -> bool:
        """Whether the wall clock counts."""
        return self.notes.get("clock") == _WALL

    @property
    def undisturbed(self) -> list[bool]:
        """Whether each call was not preempted; all True without CPU times."""
        if not self.cpu:
            return [True] * len(self.us)
        stopped = self.stopped or [False] * len(self.cpu)
        return [
            statistics.is_undisturbed(*us) and not held for *us, held in zip(self.wall, self.cpu, stopped, strict=True)
        ]

    @property
    def charged_us(self) -> list[float]:
        """The time of every call; of a disturbed one at most its CPU time, which excludes waiting."""
        if not self.cpu:
            return self.us
        rows = zip(self.us, self.cpu, self.undisturbed, strict=True)
        return [us if undisturbed else min(us, cpu) for us, cpu, undisturbed in rows]

    def low_mean(self, clock: list[float] | None = None) -> float:
        """Return the ranked statistic, by default of the times that count."""
        return statistics.low_mean(statistics.pick(clock or self.us, self.undisturbed), self.window)

    def low_interval(self, seed: int) -> tuple[float, float]:
        """Return the 95 % interval of the ranked statistic."""
        picked = statistics.pick(self.us, self.undisturbed)
        return statistics.low_interval(picked, torch.Generator().manual_seed(seed), self.window)


def samples_of(batches: list[tuple[float, float]], null: NullTimings, stopped: Sequence[bool] = ()) -> Samples:
    """Return the samples from batches of a kernel and of the null kernel, in seconds. `stopped`: as in `Samples`."""
    samples = Samples(notes={"null": null.evidence()}, stopped=list(stopped))
    for wall_s, cpu_s in batches:
        samples.add(wall_s - null.wall_s, cpu_s - null.cpu_s)
    samples.settle(null.stopping_s * 1e6)
    clocks = [[seconds * 1e6 for seconds in row] for row in zip(*batches, strict=True)]
    whole = [statistics.low_mean(statistics.pick(row, samples.undisturbed)) for row in clocks]
    samples.most_us = max(us - least_s * 1e6 for us, least_s in zip(whole, null.least_s, strict=True))
    samples.enough = sum(samples.undisturbed) >= min(_ENOUGH, len(batches)) and null.undisturbed >= _ENOUGH
    samples.lift(whole[0], null.wall_s * 1e6)
    return samples


def is_mostly_overhead(wall_us: list[float], null_s: float) -> bool:
    """Return whether net times are too small a part of the batches to be meaningful."""
    low = statistics.low_mean(wall_us)
    return low < _LEAST * (low + null_s * 1e6)
