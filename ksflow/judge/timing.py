"""How fast is it? Kernels run batches in turns, each in its sandbox, round and round, on one core; the CPU's backend.

On a CPU a batch is one call, on contents that none of the sandboxes has seen; in one round all kernels get the same.
Outside its batches a sandbox is frozen: its inputs are written and its outputs taken while nothing in it runs, so the
inputs of a call do not exist before the call before it has ended, and what a sandbox does is paid for by nobody else.
Two clocks measure a batch, and the one that says more of a kernel counts:

 - the judge's wall clock, from before a sandbox is told and thawed until its answer is there;
 - the CPU time that the sandbox's process has spent since its batch before, all of its threads: whatever it does ahead
   of the answer, after it, or while it ought to be frozen. Since each call's work lies within its own batch, whatever a
   kernel puts off or spreads over threads, this clock says at least as much as the work takes.

From both comes off what a null kernel's batches take, which has one in every round (see `overhead`; how the two clocks
become one time is said in `samples`). On two cores of an AMD EPYC (a virtual machine, 2026-11-22) a null batch took 25
to 29 µs while Python called it, of which 2 to 3 µs are the thaw; freezing the sandbox again takes 16 to 20 µs more,
outside of the wall time. A sandbox with many threads pays for stopping each of them: with sixteen idle ones a batch
takes 4 µs longer.

A short kernel gets more rounds, in the same time. Every second round has the order of the round before reversed, and
pairs of rounds form a Williams design: of any two kernels each comes first equally often in every pair of rounds, and
over twice as many rounds as there are kernels, the null kernel among them, everyone has had every place and every
predecessor equally often. Whoever comes first, after new contents have been made, may need 60 % more time than the
same kernel in another place (inputs of 2 MB, two cores of an AMD EPYC, 2026-11-28), and whoever comes after the null
kernel 8 µs less (inputs of 16 kB, same machine and day). So nothing is decided after an odd number of rounds.
"""

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ksflow.judge import statistics
from ksflow.judge.buffers import Buffers, BufferSizes
from ksflow.judge.cases import Entry, Reference
from ksflow.judge.check import Caller, Rejected, WaitBudget
from ksflow.judge.failure import Failure
from ksflow.judge.input_pool import CasePool, PoolLimits
from ksflow.judge.overhead import NullTimings, Overhead
from ksflow.judge.samples import Samples, is_mostly_overhead, samples_of
from ksflow.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.processes import quota

Json = dict[str, Any]

_SLOW_S = 0.02
_LONG_S = 0.1
_HOPELESS = ((4, 3.0), (8, 1.3))
"""After so many rounds, a kernel so many times slower than the incumbent has had its chance."""
_LOST = (2, 5.0, 5000.0)
"""The same for one whose calls take more than so many µs."""
_WARM_UPS, _FEWEST_WARM_UPS = 3, 2
_IN_PYTHON = "Python's, as there is no C++ compiler: a kernel that takes its place seems up to 6 µs faster"


class TimedKernel:
    """One kernel in its sandbox. Its calls may take limit_s in all."""

    def __init__(self, name: str, sandbox: Sandbox, reference: Reference, limit_s: float) -> None:
        self.name = name
        self.sandbox = sandbox
        self.required = False
        """Whether its failures are the verdict; another one is dropped for them."""
        self.samples = Samples()
        """Until the end of a benchmark they rest on a first estimate of the null batch; then on all null batches."""
        self.once_s: dict[str, float] = {}
        """How long one call takes, by case."""
        self._reference = reference
        self.budget = WaitBudget(limit_s)
        self._null: NullTimings | None = None
        self._gross: list[tuple[float, float]] = []
        """Wall and CPU seconds of every batch, with what a null batch takes still in them."""
        self._clock_s = 0.0
        """The sandbox's CPU clock when it was last frozen."""
        self.caller: Caller

    def begin(self, case: CasePool, null: Any) -> None:
        """Stage a case; with null batches to compare with, the sandbox is frozen from now on. Raises Failure."""
        self.sandbox.thaw()
        self.caller = Caller(self.sandbox, case, self._reference)
        self._null = null
        self.forget()
        if null is not None:
            self.sandbox.freeze()
            self._clock_s = self.sandbox.cpu_s()

    def warm_up(self, entries: list[Entry], case: CasePool) -> None:
        """First calls on a case, one a batch: how long one takes. Raises Failure, Rejected.

        The very first may compile what it calls, so it alone tells nothing.
        """
        self.begin(case, None)
        for number, entry in enumerate(entries):
            self.once_s[case.name] = self.run_batch([entry])
            if number and self.once_s[case.name] > _SLOW_S:
                break
        self.end()

    def run_batch(self, entries: list[Entry]) -> float:
        """One batch; its wall seconds. Raises Failure, Rejected."""
        slots = self.caller.fill(entries)
        limited = self._null is not None and quota.cores() is not None
        stops = quota.stops() if limited else 0
        with self.budget.waiting() as left_s:
            wall_s = self.sandbox.go(slots, left_s)
            if self._null is not None:
                self.sandbox.freeze()
                clock_s = self.sandbox.cpu_s()
                self._gross.append((wall_s, clock_s - self._clock_s))
                self._clock_s = clock_s
                self.samples.add(wall_s - self._null.wall_s, self._gross[-1][1] - self._null.cpu_s)
                self.samples.stopped.append(limited and quota.stops() > stops)
        self.caller.take(slots, entries)
        return wall_s

    def forget(self) -> None:
        """Drop what was timed so far: it was to warm up."""
        self.samples, self._gross = Samples(), []

    def end(self) -> None:
        """Make samples of all batches, and look at what is still held. Raises Rejected."""
        if self._null is not None:
            self.samples = samples_of(self._gross, self._null, self.samples.stopped)
        self.caller.share_of_bound()
        self.caller.close()

    @property
    def quiet(self) -> bool:
        """Whether most batches so far were undisturbed, and what a null batch takes is not all that they took."""
        samples, null = self.samples, self._null
        if 2 * sum(samples.undisturbed) < len(samples.us) - 1:
            return False
        return null is None or not samples.wall or not is_mostly_overhead(samples.wall, null.wall_s)


@dataclass(frozen=True)
class Replicate:
    """One of several times that all is timed, in fresh processes."""

    number: int = 0
    of: int = 1


class CaseBenchmark:
    """One case in one replicate: the first kernel against the others, who are dropped when they fail."""

    short_s = 120e-6
    """A kernel that takes less gets more rounds: as many as fill the time that the rounds of one like this take."""
    case_s = 0.25
    """At most, in a replicate; up to twice as long while the machine is busy."""
    most_rounds = 8
    """Times as many at most, for a short kernel."""
    rounds_of: ClassVar[dict[int, int]] = {1: 16, 2: 12, 3: 8}
    """By how many kernels there are: everyone has had every place equally often. Up to twice as many while the machine
    is busy. What varies between replicates is several times what varies within one, so that more replicates tell more
    than more rounds."""

    def __init__(
        self,
        backend: "Backend",
        case: CasePool,
        kernels: list[TimedKernel],
        feed: Iterator[Entry],
        replicate: Replicate,
    ) -> None:
        self.replicate = replicate
        self.wanted_rounds = self.rounds_of[replicate.of]
        self.case = case
        self.kernels = kernels
        self.dropped: dict[str, str] = {}
        self.rounds = 0
        self.calls = 1
        """In a batch."""
        self.contents: list[int] = []
        """Their seeds."""
        self.whole = 0
        """How many of the contents were compared whole."""
        self._feed = feed
        self._backend = backend
        self._stride = 1
        """So many rounds of a short kernel stand for one of another."""

    def warm_up(self, kernels: list[TimedKernel]) -> None:
        """First calls of kernels, while they may still start processes, on contents that no others see. Those that
        fail are taken from the list. Raises Failure, Rejected of a required one."""
        entries = self._contents(_FEWEST_WARM_UPS if self.case.large else _WARM_UPS)
        self._each(lambda kernel: kernel.warm_up(entries, self.case), kernels)

    def run(self) -> None:
        """Time the kernels. Raises Failure, Rejected of the first kernel only."""
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

    # -- inside ----------------------------------------------------------------------------------

    def _null_timings(self) -> NullTimings | None:
        """What a batch costs when nothing is done in it, to be known better with every round."""
        return self._backend.overhead.begin(self.case)

    def _calls_per_batch(self, fastest_s: float) -> int:
        """One. A kernel whose call is short gets more rounds for it."""
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
        """A batch of every kernel and of the null kernel, all on the same contents, in this round's order."""
        entries = self._contents(self.calls)
        for kernel in self._order():
            if kernel is None:
                self._null_batch(null, entries)
            else:
                self._each(lambda kernel: kernel.run_batch(entries), [kernel])

    def _order(self) -> list[TimedKernel | None]:
        """Who is called when in this round, the null kernel (None) among them: a Williams design, in which everyone
        follows everyone else equally often within a round, its rows in an order drawn anew for each pass, and rounds
        reversed in turn. In every second replicate the first two kernels have each other's part."""
        turns: list[TimedKernel | None] = [*self.kernels, None]
        if self.replicate.number % 2:
            turns[:2] = turns[1::-1]
        count, pair = len(turns), self.rounds // 2
        rows = random.Random(f"{self.replicate.number // 2} {pair // count}").sample(range(count), count)
        first = rows[pair % count]
        order = [turns[(first + (step // 2 + 1 if step % 2 else -(step // 2))) % count] for step in range(count)]
        return order[::-1] if self.rounds % 2 else order

    def _null_batch(self, null: NullTimings | None, entries: list[Entry]) -> None:
        assert null is not None
        self._backend.overhead.run_batch(null, entries[0])

    def _each(self, move: Callable[[TimedKernel], object], kernels: list[TimedKernel] | None = None) -> None:
        """Let kernels (all, unless said) do something. Raises what a required one raises; others are dropped from the
        benchmark and from the list."""
        kernels = self.kernels if kernels is None else kernels
        for kernel in list(kernels):
            try:
                move(kernel)
            except (Failure, Rejected) as error:
                if kernel.required:
                    raise
                for each in (kernels, self.kernels):
                    if kernel in each:
                        each.remove(kernel)
                kernel.sandbox.close()
                self.dropped[kernel.name] = str(error)

    def _enough(self, fewest: int, elapsed_s: float) -> bool:
        """On a quiet machine after a number or time; after up to twice that while most batches are disturbed. Not after
        an odd number of rounds, unless the kernel's time is up."""
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
        """Clearly slower than the incumbent: even its good batches are behind the incumbent's usual ones. So many
        rounds were timed, in which both have come first equally often."""
        if len(self.kernels) < 2 or not (self.kernels[0].samples.us and self.kernels[1].samples.us):
            return False
        own_us, incumbent_us = (kernel.samples.us for kernel in self.kernels[:2])
        low_us, usual_us = statistics.low(own_us), statistics.middle(incumbent_us)
        lost = rounds >= _LOST[0] and low_us > max(_LOST[1] * usual_us, _LOST[2])
        return lost or any(rounds >= look and low_us > times * usual_us for look, times in _HOPELESS)


class Backend:
    """What judging on a CPU and on a GPU differ in: where contents lie, what a sandbox is, which clocks there are.

    This is a CPU's. Sandboxes have shared memory and are frozen between batches.
    """

    device_uuid = ""
    """Names the lock of the GPU (see `device_lock`); empty on a CPU."""
    spread = statistics.SPREAD
    """What replicates are taken to differ by before they were seen."""
    starts_together = False
    """Whether all kernels of a comparison start at once, because a start takes long."""

    def __init__(self, overhead: Overhead, memory: PoolLimits) -> None:
        self.overhead, self.memory = overhead, memory

    def buffers(self, wanted: BufferSizes) -> Buffers:
        """Memory for one sandbox."""
        return Buffers(wanted)

    def sandbox(self, start: SandboxSpec, buffers: Any) -> Sandbox:
        """Start one."""
        return Sandbox(start, buffers)

    def timed_kernel(self, name: str, sandbox: Sandbox, reference: Reference, limit_s: float) -> TimedKernel:
        """A kernel in its sandbox, to be timed."""
        return TimedKernel(name, sandbox, reference, limit_s)

    def benchmark(
        self, case: CasePool, kernels: list[TimedKernel], feed: Iterator[Entry], replicate: Replicate
    ) -> CaseBenchmark:
        """One case in one replicate."""
        return CaseBenchmark(self, case, kernels, feed, replicate)

    def evidence(self) -> Json:
        """What is known of the machine's state now."""
        python = {} if self.overhead.native else {"harness": _IN_PYTHON}
        return {"overhead_us": self.overhead.evidence(), **python}

    def lease(self) -> AbstractContextManager[None]:
        """What a judgement holds for itself while it lasts."""
        return nullcontext()

    def release(self) -> None:
        """Give back memory that nothing needs, so that sandboxes can have it."""

    def hoarded(self, close: Callable[[], None]) -> bool:
        """End a sandbox by `close`; whether it held so much of the memory that little was left for the judge."""
        close()
        return False

    def probe(self) -> None:
        """Raise RuntimeError unless the machine still computes, after a sandbox that ended badly."""
