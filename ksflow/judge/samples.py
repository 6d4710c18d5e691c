"""What was timed of one kernel, on one case in one replicate, and how much of it is the kernel's own.

A batch is timed by the judge's wall clock and by the CPU time of the sandbox, from one freezing to the next. From both
comes off what a null kernel's batch takes. The CPU clock is there to catch work on other threads and after the answer.
It also holds what the operating system does to stop a sandbox, which costs a kernel that has filled the caches some µs
more than a null kernel. So the wall clock counts as long as the CPU time does not exceed it by more than `_UNSEEN` and
half of what stopping costs a null kernel; beyond that counts the CPU time less this allowance, so that neither of two
like kernels jumps from one clock to the other. What a trick could hide in the allowance is at most what makes a
difference (`RESOLVED`).

On a busy machine a null batch may seem to take as long as the kernel's. A time never falls below `_LEAST` of the batch;
for one that would (or below half of it, with few undisturbed batches), no more than the fastest null batch comes off,
and it is in doubt. `most_us` is what remains then: a disturbed machine makes batches longer and never shorter, so only
this may say that a time is impossible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ksflow.judge import statistics
from ksflow.judge.overhead import NullTimings
from ksflow.records.evidence import RESOLVED

_LEAST_US = 0.01
"""No call is said to take less."""
_LEAST = 0.03
"""Of a batch; less than this share is not told from the null batch."""
_UNSEEN = RESOLVED - 1
_ENOUGH = 5
"""Undisturbed batches, of the kernel and of the null kernel, from which a time may be called impossible."""
_WALL = "wall: the judge's, one call a batch, less a null batch"
_CPU = "cpu: the sandbox's CPU time, which says more than the judge's wall clock; one call a batch, less a null batch"


@dataclass
class Samples:
    """Per call, in µs, one per round."""

    us: list[float] = field(default_factory=list)
    """What counts."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    """In which calls a quota stopped the machine's processes; empty where nobody looked."""
    window: tuple[float, float] = statistics.LOW
    """Which part of the sorted samples is ranked."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What else is known of how they were taken."""
    most_us: float | None = None
    """What is ranked, with no more taken off than the fastest null batch; None where that is not known."""
    enough: bool = True
    """Whether enough batches were undisturbed to call a time impossible."""
    doubt: str = ""
    """Why nothing can be ranked by them."""

    def add(self, wall_s: float, cpu_s: float) -> None:
        """One call, by its two clocks, in seconds."""
        wall_us, cpu_us = (max(seconds * 1e6, _LEAST_US) for seconds in (wall_s, cpu_s))
        for row, value in ((self.wall, wall_us), (self.cpu, cpu_us), (self.us, max(wall_us, cpu_us))):
            row.append(value)

    def settle(self, stopping_us: float) -> None:
        """Let one clock count for all calls; until now it is the larger one of each call.

        stopping_us: the CPU time that it takes to stop a null kernel's sandbox.
        """
        low_wall, low_cpu = (statistics.low(statistics.pick(row, self.undisturbed)) for row in (self.wall, self.cpu))
        allowed = min(_UNSEEN * low_wall, stopping_us / 2)
        by_cpu = low_cpu > low_wall + allowed
        self.us = [max(us - allowed, _LEAST_US) for us in self.cpu] if by_cpu else list(self.wall)
        self.notes["clock"] = _CPU if by_cpu else _WALL

    def lift(self, batch_us: float, null_us: float) -> None:
        """See to it that no time is too good, where a batch took so long and a null batch hardly less."""
        least = _LEAST * batch_us
        if (low := self.low()) < (least if self.enough else batch_us / 2):
            self.doubt = f"a call took {batch_us:.3g} µs, {null_us:.3g} of them a null kernel's: too little is left"
            shift = max(self.most_us or 0.0, least) - low
            self.us = [us + shift for us in self.us]

    @property
    def undisturbed(self) -> list[bool]:
        """Which were not preempted; all, where no CPU time is taken."""
        if not self.cpu:
            return [True] * len(self.us)
        stopped = self.stopped or [False] * len(self.cpu)
        return [
            statistics.undisturbed(*us) and not held for *us, held in zip(self.wall, self.cpu, stopped, strict=True)
        ]

    @property
    def charged(self) -> list[float]:
        """Every call: what counts, but of a disturbed one the CPU time, which waiting and sleeping take nothing of."""
        if not self.cpu:
            return self.us
        rows = zip(self.us, self.cpu, self.undisturbed, strict=True)
        return [us if undisturbed else min(us, cpu) for us, cpu, undisturbed in rows]

    def low(self) -> float:
        """What is ranked."""
        return statistics.low(statistics.pick(self.us, self.undisturbed), self.window)


def samples_of(batches: list[tuple[float, float]], null: NullTimings, stopped: Sequence[bool] = ()) -> Samples:
    """From a kernel's batches in the seconds of both clocks, and the null batches of the same benchmark. `stopped`: as
    in `Samples`."""
    samples = Samples(notes={"null": null.evidence()}, stopped=list(stopped))
    for wall_s, cpu_s in batches:
        samples.add(wall_s - null.wall_s, cpu_s - null.cpu_s)
    samples.settle(null.stopping_s * 1e6)
    clocks = [[seconds * 1e6 for seconds in row] for row in zip(*batches, strict=True)]
    whole = [statistics.low(statistics.pick(row, samples.undisturbed)) for row in clocks]
    samples.most_us = max(us - least_s * 1e6 for us, least_s in zip(whole, null.least_s, strict=True))
    samples.enough = sum(samples.undisturbed) >= min(_ENOUGH, len(batches)) and null.undisturbed >= _ENOUGH
    samples.lift(whole[0], null.wall_s * 1e6)
    return samples


def is_mostly_overhead(wall_us: list[float], null_s: float) -> bool:
    """Whether times, with a null batch's taken off, are too small a part of the batches to say anything."""
    low = statistics.low(wall_us)
    return low < _LEAST * (low + null_s * 1e6)
