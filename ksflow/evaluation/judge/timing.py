"""Timing: kernels run batches in turns, each in its own sandbox, on the same core or cores. This is the CPU's backend.

On a CPU a batch is one call, on contents that no sandbox has seen; in one round all kernels get the same contents.
Outside of its batches a sandbox is frozen: inputs are written and outputs read while nothing in it runs. So the inputs
of a call do not exist before the previous call has ended, and a sandbox's work cannot slow down another one.

Two clocks measure a batch, and the larger time counts: the judge's wall clock, and the CPU time of the sandbox's
process since its previous batch, which covers work before the answer, after the answer, and while the sandbox ought to
be frozen. The time of a null kernel, which has a batch in every round, is subtracted from both (see `overhead`;
`samples` combines the clocks).

A short kernel gets more rounds in the same time. Pairs of rounds form a Williams design: over twice as many rounds as
there are kernels, the null kernel included, each has had every place and every predecessor equally often. The first
kernel after new contents may need 60 % more time than in another place (inputs of 2 MB, two cores of an AMD EPYC,
2026-11-28). So nothing is decided after an odd number of rounds.
"""

import math
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.cases import Entry
from ksflow.evaluation.judge.check import Caller, Rejected, WaitBudget
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.input_pool import CasePool, PoolLimits
from ksflow.evaluation.judge.outcome import CaseResult
from ksflow.evaluation.judge.overhead import Clocks, NullTimings, Overhead
from ksflow.evaluation.judge.samples import Samples, is_mostly_overhead, samples_of
from ksflow.evaluation.judge.sandboxed import Sandbox
from ksflow.evaluation.processes import quota
from ksflow.records.base import Json

_SLOW_S = 0.02
_LONG_S = 0.1
_HOPELESS = ((4, 3.0), (8, 1.3))
"""(rounds, factor): a kernel that is slower than the incumbent by the factor is given up after so many rounds."""
_LOST = (2, 5.0, 5000.0)  # (rounds, factor, µs): the same for a kernel whose calls also take more than so many µs
_WARM_UPS, _FEWEST_WARM_UPS = 3, 2
_OUTSIDE = "wall and cpu: the judge's wall clock, and the sandbox's CPU time outside of its calls; less a null batch"


class TimedKernel:
    """One kernel in its sandbox. limit_s: time limit of all calls together."""

    def __init__(self, name: str, sandbox: Sandbox, limit_s: float) -> None:
        self.name = name
        self.sandbox = sandbox
        self._clocks = Clocks(sandbox)
        self.required = False  # whether its failure decides the verdict; any other kernel is dropped for a failure
        self.samples = Samples()  # net of a first estimate of the null batch; after `end`, net of all null batches
        self.once_s: dict[str, float] = {}  # wall seconds of one call, by case
        self.budget = WaitBudget(limit_s)
        self._null: NullTimings | None = None
        self._tree_us: list[float] = []  # CPU time of every batch
        self._gross: list[tuple[float, float]] = []  # seconds of every batch by both clocks, null batch included
        self.caller: Caller

    def begin(self, case: CasePool, null: Any) -> None:
        """Stage a case; if `null` is given, freeze the sandbox until the first batch. Raises Failure."""
        self.sandbox.thaw()
        self.caller = Caller(self.sandbox, case)
        self._null = null
        self.forget()
        if null is not None:
            self._clocks.start()

    def warm_up(self, entries: list[Entry], case: CasePool) -> None:
        """Make the first calls on a case, and record how long the last one takes: the first may compile. Raises
        Failure, Rejected."""
        self.begin(case, None)
        for number, entry in enumerate(entries):
            self.once_s[case.name] = self.run_batch([entry])
            if number and self.once_s[case.name] > _SLOW_S:
                break
        self.end()

    def run_batch(self, entries: list[Entry]) -> float:
        """Run one batch and return its wall seconds. Raises Failure, Rejected."""
        slots = self.caller.fill(entries)
        limited = self._null is not None and quota.cores() is not None
        stops = quota.stops() if limited else 0
        with self.budget.charge_wait() as left_s:
            if self._null is None:
                wall_s = self.sandbox.go(slots, left_s)
            else:
                wall_s, clock_s = self._clocks.call(slots, left_s)
                self._gross.append((wall_s, clock_s))
                self.samples.add(wall_s - self._null.wall_s, clock_s - self._null.cpu_s)
                delayed = not statistics.is_undisturbed(wall_s * 1e6, (wall_s - self._clocks.delay_s) * 1e6)
                self.samples.stopped.append(delayed or (limited and quota.stops() > stops))
                self._tree_us.append(self._clocks.tree_s * 1e6)
        self.caller.take(slots, entries)
        return wall_s

    def forget(self) -> None:
        self.samples, self._gross, self._tree_us = Samples(), [], []

    def end(self) -> None:
        """Compute the samples of all batches, and compare the outputs not yet compared. Raises Rejected."""
        if self._null is not None:
            self.samples = samples_of(self._gross, self._null, self.samples.stopped)
            if self.sandbox.cores > 1:
                spent = {"threads": self._clocks.threads, "cpu_us": round(statistics.median(self._tree_us), 3)}
                self.samples.notes |= spent if self.samples.by_wall else {**spent, "clock": _OUTSIDE}
        self.caller.share_of_bound()
        self.caller.close()

    @property
    def quiet(self) -> bool:
        """Whether most batches so far were undisturbed, and took clearly longer than a null batch."""
        samples, null = self.samples, self._null
        if 2 * sum(samples.undisturbed) < len(samples.us) - 1:
            return False
        return null is None or not samples.wall or not is_mostly_overhead(samples.wall, null.wall_s)


@dataclass(frozen=True)
class Replicate:
    """Number of a replicate, and how many there are. Each replicate times everything in fresh processes."""

    number: int = 0
    of: int = 1


class CaseBenchmark:
    """One case in one replicate: the first kernel against the others, which are dropped when they fail."""

    short_s = 120e-6
    """A kernel with shorter calls gets more rounds, to fill the time of a kernel with calls of this length."""
    case_s = 0.25  # limit of one replicate; twice that while the machine is busy
    most_rounds = 8  # factor, at most, on the rounds of a short kernel
    rounds_of: ClassVar[dict[int, int]] = {1: 16, 2: 12, 3: 8}
    """Rounds by the number of replicates; up to twice as many while the machine is busy. Replicates vary several times
    as much as rounds within one, so more replicates tell more than more rounds."""

    def __init__(self, backend: "Backend", case: CasePool, kernels: list[TimedKernel], replicate: Replicate) -> None:
        self.replicate = replicate
        self.wanted_rounds = self.rounds_of[replicate.of]
        self.case = case
        self.kernels = kernels
        self.dropped: dict[str, str] = {}
        self.rounds = 0
        self.calls = 1  # per batch
        self.contents: list[int] = []  # seeds
        self.whole = 0  # how many contents were compared in all elements
        self._feed = case.feed()
        self._backend = backend
        self._stride = 1  # rounds of a short kernel that count as one round of another

    def warm_up(self, kernels: list[TimedKernel]) -> None:
        """Make the first calls of kernels, and remove failed ones. Raises Failure, Rejected of a required kernel."""
        entries = self._contents(_FEWEST_WARM_UPS if self.case.large else _WARM_UPS)
        self._each(lambda kernel: kernel.warm_up(entries, self.case), kernels)

    def run(self) -> CaseResult:
        """Time the kernels and return their samples. Raises Failure, Rejected of the first kernel only."""
        first_calls = [kernel.once_s[self.case.name] for kernel in self.kernels]
        null = self._null_timings()
        self.calls = self._calls_per_batch(min(first_calls))
        round_s = self.calls * sum(first_calls)
        self._each(lambda kernel: kernel.begin(self.case, null))
        if round_s < _SLOW_S:
            self._round(null)
            self._each(lambda kernel: kernel.forget())
        fewest, started = 2 if round_s > _LONG_S else 4, time.monotonic()
        while not self._enough(fewest, time.monotonic() - started):
            self._round(null)
            self.rounds += 1
        if null is not None:
            null.settle()
        self._each(lambda kernel: kernel.end())
        samples = {kernel.name: kernel.samples for kernel in self.kernels}
        entered = frozenset({*samples, *self.dropped})
        worst, weight = self.kernels[0].caller.worst, self.case.case.get("weight", 1.0)
        return CaseResult(samples, entered, self.rounds, self.calls, worst, self.contents, self.whole, weight)

    def _null_timings(self) -> NullTimings | None:
        return self._backend.overhead.begin(self.case)

    def _null_batch(self, null: NullTimings | None, entries: list[Entry]) -> None:
        assert null is not None
        self._backend.overhead.run_batch(null, entries[0])

    def _calls_per_batch(self, fastest_s: float) -> int:
        """Return 1; a kernel with short calls gets more rounds instead."""
        net_s = max(fastest_s - self._backend.overhead.usual_s, self.short_s / self.most_rounds)
        self._stride = max(math.ceil(self.short_s / net_s), 1)
        self.wanted_rounds *= self._stride
        return 1

    def _contents(self, count: int) -> list[Entry]:
        entries = list(islice(self._feed, count))
        self.contents += [entry.seed for entry in entries]
        self.whole += sum(all(want.sample is None for want in entry.expected) for entry in entries)
        return entries

    def _round(self, null: NullTimings | None) -> None:
        """Run a batch of every kernel and of the null kernel, on the same contents."""
        entries = self._contents(self.calls)
        for kernel in self._order():
            if kernel is None:
                self._null_batch(null, entries)
            else:
                self._each(lambda kernel: kernel.run_batch(entries), [kernel])

    def _order(self) -> list[TimedKernel | None]:
        """Return the order of this round, with None for the null kernel: a row of a Williams design, whose rows are
        shuffled for each pass."""
        turns: list[TimedKernel | None] = [*self.kernels, None]
        if self.replicate.number % 2:
            turns[:2] = turns[1::-1]
        count, pair = len(turns), self.rounds // 2
        rows = random.Random(f"{self.replicate.number // 2} {pair // count}").sample(range(count), count)
        first = rows[pair % count]
        order = [turns[(first + (step // 2 + 1 if step % 2 else -(step // 2))) % count] for step in range(count)]
        return order[::-1] if self.rounds % 2 else order

    def _each(self, move: Callable[[TimedKernel], object], kernels: list[TimedKernel] | None = None) -> None:
        """Call `move` for kernels (default: all). A required kernel's failure is raised; others are dropped."""
        kernels = self.kernels if kernels is None else kernels
        for kernel in list(kernels):
            try:
                move(kernel)
            except (Failure, Rejected) as error:
                if kernel.required:
                    raise
                for each in (kernels, self.kernels):
                    each[:] = [other for other in each if other is not kernel]
                kernel.sandbox.close()
                self.dropped[kernel.name] = str(error)

    def _enough(self, fewest: int, elapsed_s: float) -> bool:
        """Return whether to stop: after the wanted rounds or time; up to twice that while most batches are disturbed.
        Never after an odd number of rounds, unless the kernel's time is up."""
        if self.rounds and self.kernels[0].budget.left_s <= 0:
            return True
        if self.rounds % 2:
            return False
        if self.rounds % (2 * self._stride) == 0 and self._hopeless(self.rounds // self._stride):
            return True
        if self.rounds < fewest:
            return False
        if self.rounds >= 2 * self.wanted_rounds or elapsed_s > 2 * self.case_s:
            return True
        done = self.rounds >= self.wanted_rounds or elapsed_s > self.case_s
        return done and all(kernel.quiet for kernel in self.kernels)

    def _hopeless(self, rounds: int) -> bool:
        """Return whether the first kernel's good batches are clearly slower than the incumbent's usual ones."""
        if len(self.kernels) < 2 or not (self.kernels[0].samples.us and self.kernels[1].samples.us):
            return False
        own_us, incumbent_us = (kernel.samples.us for kernel in self.kernels[:2])
        low_us, usual_us = statistics.low_mean(own_us), statistics.median(incumbent_us)
        lost = rounds >= _LOST[0] and low_us > max(_LOST[1] * usual_us, _LOST[2])
        return lost or any(rounds >= look and low_us > times * usual_us for look, times in _HOPELESS)


class Backend:
    """What differs between judging on a CPU and on a GPU: memory, sandboxes, clocks. This class is the CPU's, whose
    sandboxes have shared memory and are frozen between batches."""

    device_uuid = ""  # name of the GPU's lock (see `device_lock`)
    spread = statistics.SPREAD  # prior of the spread between replicates
    starts_together = False  # whether all kernels of a comparison start at once
    sandbox: ClassVar[Callable[..., Sandbox]] = Sandbox
    timed_kernel: ClassVar[Callable[..., TimedKernel]] = TimedKernel
    benchmark: ClassVar[Callable[..., CaseBenchmark]] = CaseBenchmark

    def __init__(self, overhead: Overhead, memory: PoolLimits) -> None:
        self.overhead, self.memory = overhead, memory

    def buffers(self, wanted: BufferSizes) -> Buffers:
        """Return memory for one sandbox."""
        return Buffers(wanted)

    def evidence(self) -> Json:
        """Return the state of the machine, for the record."""
        return self.overhead.evidence()

    def lease(self) -> AbstractContextManager[None]:
        """Return the context that an evaluation holds throughout, such as a lock."""
        return nullcontext()

    def release(self) -> None:
        """Give back unused memory, so that sandboxes can have it."""

    def close_hoarding(self, close: Callable[[], None]) -> bool:
        """End a sandbox by `close`; return whether it left too little memory for the judge."""
        close()
        return False

    def probe(self) -> None:
        """Raise RuntimeError if the machine no longer computes, after a sandbox that ended badly."""
