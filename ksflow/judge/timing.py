"""How fast is it? Contestants take turns in their own sandboxes, round and round, on one core.

A turn is one call, on contents that none of the sandboxes has seen; in one round all kernels get the same. Outside its
turn a sandbox is frozen: its inputs are written and its outputs taken while nothing in it runs, so the inputs of a call
do not exist before the call before it has ended, and what a sandbox does is paid for by nobody else. Two clocks measure
a batch, and the one that says more of a kernel counts:

 - the judge's wall clock, from before a sandbox is told and thawed until its answer is there;
 - the CPU time that the sandbox's process has spent since its turn before, all of its threads: whatever it does ahead
   of the answer, after it, or while it ought to be frozen. Since each call's work lies within its own batch, whatever a
   kernel puts off or spreads over threads, this clock says at least as much as the work takes.

From both comes off what a null kernel's turns take, which has one in every round (see `overhead`; how the two clocks
become one time is said in `samples`). On two cores of an AMD EPYC (a virtual machine, 2026-11-22) a null batch takes 25
to 29 µs, of which 2 to 3 µs are the thaw; freezing the sandbox again takes 16 to 20 µs more, outside of the wall time.
A sandbox with many threads pays for stopping each of them: with sixteen idle ones a turn takes 4 µs longer.

A short kernel gets more rounds, in the same time. The order stays the same for some rounds and is the reverse for as
many. So a turn comes after another kernel's (half of the turns after oneself, as in A B B A, would find warm caches,
and the one in the middle of three never), and of two kernels that share libraries each comes after the other as often
as it goes before.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ksflow.judge import statistics
from ksflow.judge.cases import Entry, Reference
from ksflow.judge.check import Caller, Rejected, WaitBudget
from ksflow.judge.failure import Failure
from ksflow.judge.input_pool import CasePool
from ksflow.judge.overhead import NullTimings, Overhead
from ksflow.judge.samples import Samples, is_mostly_overhead, samples_of
from ksflow.judge.sandboxed import Sandbox

_SLOW_S = 0.02
_LONG_S = 0.1
_HOPELESS = ((3, 3.0), (7, 1.3))
"""After so many rounds, a kernel so many times slower than the incumbent has had its chance."""
_LOST = (0.005, 5.0)
"""First calls that say so at once: so many seconds each, and so many times the incumbent's."""
_WARM_UPS, _FEWEST_WARM_UPS = 3, 2
_REVERSED_AFTER = 16
"""After so many rounds at most the order is reversed."""


class TimedKernel:
    """One kernel in its sandbox."""

    def __init__(self, name: str, sandbox: Sandbox, reference: Reference, limit_s: float) -> None:
        self.name = name
        self.sandbox = sandbox
        self.samples = Samples()
        """In a benchmark they rest on a first estimate of the null batch; those of its end, on all null batches."""
        self.once_s: dict[str, float] = {}
        self._reference = reference
        self.budget = WaitBudget(limit_s)
        self._null: NullTimings | None = None
        self._gross: list[tuple[float, float]] = []
        """Wall and CPU seconds of every batch, with what a null batch takes still in them."""
        self._clock_s = 0.0
        """The sandbox's CPU clock when it was last frozen."""
        self.caller: Caller

    def begin(self, case: CasePool, null: Any) -> None:
        """Turn to a case; with null batches to compare with, the sandbox is frozen from now on. Raises Failure."""
        self.sandbox.thaw()
        self.caller = Caller(self.sandbox, case, self._reference)
        self._null = null
        self.forget()
        if null is not None:
            self.sandbox.freeze()
            self._clock_s = self.sandbox.cpu_s()

    def warm_up(self, contents: Iterator[Entry], case: CasePool, null: Any) -> None:
        """First calls on a case, a call a turn: how long one takes. Raises Failure, Rejected.

        The very first may compile what it calls, so it alone tells nothing.
        """
        self.begin(case, null)
        for number, entry in enumerate(contents):
            self.once_s[case.name] = self.run_batch([entry])
            if number and self.once_s[case.name] > _SLOW_S:
                break
        self.end()

    def run_batch(self, entries: list[Entry]) -> float:
        """One turn; its wall seconds. Raises Failure, Rejected."""
        slots = self.caller.fill(entries)
        with self.budget.waiting() as left_s:
            wall_s = self.sandbox.go(slots, left_s)
            if self._null is not None:
                self.sandbox.freeze()
                self._book(wall_s, self._null)
        self.caller.take(slots, entries)
        return wall_s

    def forget(self) -> None:
        """What was timed so far was to warm up."""
        self.samples, self._gross = Samples(), []

    def end(self) -> None:
        """Book all batches, and look at what is still held. Raises Rejected."""
        if self._null is not None:
            self.samples = samples_of(self._gross, self._null)
        self.caller.share_of_bound()
        self.caller.close()

    @property
    def quiet(self) -> bool:
        """Whether most turns so far were undisturbed, and what a null batch takes is not all that they took."""
        samples, null = self.samples, self._null
        if 2 * sum(samples.undisturbed) < len(samples.us) - 1:
            return False
        return null is None or not samples.wall or not is_mostly_overhead(samples.wall, null.wall_s)

    # -- inside ----------------------------------------------------------------------------------

    def _book(self, wall_s: float, null: NullTimings) -> None:
        clock_s = self.sandbox.cpu_s()
        self._gross.append((wall_s, clock_s - self._clock_s))
        self._clock_s = clock_s
        self.samples.add(wall_s - null.wall_s, self._gross[-1][1] - null.cpu_s)


@dataclass(frozen=True)
class Replicate:
    """One of several times round, in fresh processes."""

    number: int = 0
    of: int = 1


class CaseBenchmark:
    """One case: the first kernel against the others, who are dropped when they fail."""

    short_s = 120e-6
    """A kernel that takes less gets more rounds: as many as fill the time that the rounds of one like this take."""
    case_s = 0.25
    """At most, in a replicate; up to twice as long while the machine is busy."""
    most_rounds = 8
    """Times as many at most, for a short kernel."""
    rounds_of: ClassVar[dict[int, int]] = {1: 32, 2: 24, 3: 16}
    """In each of so many replicates; up to twice as many while the machine is busy."""

    def __init__(
        self,
        case: CasePool,
        kernels: list[TimedKernel],
        feed: Iterator[Entry],
        overhead: Overhead | None,
        replicate: Replicate,
    ) -> None:
        self.replicate = replicate
        self.wanted_rounds = self.rounds_of[replicate.of]
        self.case = case
        self.kernels = kernels
        self.dropped: dict[str, str] = {}
        self.rounds = 0
        self.calls = 1
        self.contents: list[int] = []
        self.whole = 0
        self._feed = feed
        self._overhead = overhead
        self._stride = 1
        """So many rounds of a short kernel stand for one of another."""

    def warm_up(self) -> None:
        """First calls of every kernel, while they may still start processes."""
        entries = self._contents(_FEWEST_WARM_UPS if self.case.large else _WARM_UPS)
        self._each(lambda kernel: kernel.warm_up(iter(entries), self.case, None))

    def run(self) -> None:
        """Take turns. Raises Failure, Rejected of the first kernel only."""
        fastest = min(kernel.once_s[self.case.name] for kernel in self.kernels)
        null = self._null(self.calls)
        self.calls = self._room(fastest)
        batch_s = self.calls * sum(kernel.once_s[self.case.name] for kernel in self.kernels)
        self._each(lambda kernel: kernel.begin(self.case, null))
        if batch_s < _SLOW_S:
            self._round(null)
            self._each(lambda kernel: kernel.forget())
        fewest, started = 1 if batch_s > _LONG_S else 3, time.monotonic()
        while not self._enough(fewest, time.monotonic() - started):
            self._round(null)
            self.rounds += 1
        if self._overhead is not None:
            null.settle()
        self._each(lambda kernel: kernel.end())
        self.case.wanted = max(_WARM_UPS + (self.wanted_rounds + 2) * self.calls, self.case.wanted // 2)

    # -- inside ----------------------------------------------------------------------------------

    def _null(self, calls: int) -> Any:
        """What a turn of so many calls costs when nothing is done in it."""
        assert self._overhead is not None
        return self._overhead.begin(self.case)

    def _room(self, fastest: float) -> int:
        """How many calls a turn has, when one takes so many seconds: one. A short one gets more rounds for it."""
        assert self._overhead is not None
        net_s = max(fastest - self._overhead.usual_s, self.short_s / self.most_rounds)
        self._stride = max(math.ceil(self.short_s / net_s), 1)
        self.wanted_rounds *= self._stride
        return 1

    def _contents(self, count: int) -> list[Entry]:
        entries = list(islice(self._feed, count))
        self.contents += [entry.number for entry in entries]
        self.whole += sum(all(want.sample is None for want in entry.expected) for entry in entries)
        return entries

    def _round(self, null: Any) -> None:
        entries = self._contents(self.calls)
        self._batches(entries)
        if self._overhead is not None:
            self._overhead.run_batch(null, entries[0])

    def _batches(self, entries: list[Entry]) -> None:
        """All on the same contents."""
        self._each(lambda kernel: kernel.run_batch(entries))

    def _each(self, move: Callable[[TimedKernel], object]) -> None:
        first = self.replicate.number % len(self.kernels)
        order = self.kernels[first:] + self.kernels[:first]
        turned = self.rounds // min(-(-self.wanted_rounds // 2), _REVERSED_AFTER) % 2
        for kernel in order[::-1] if turned else order:
            self._try(kernel, move)

    def _try(self, kernel: TimedKernel, move: Callable[[TimedKernel], object]) -> None:
        if kernel not in self.kernels:
            return
        try:
            move(kernel)
        except (Failure, Rejected) as error:
            if kernel is self.kernels[0]:
                raise
            self.kernels.remove(kernel)
            kernel.sandbox.close()
            self.dropped[kernel.name] = str(error)

    @property
    def _lost(self) -> bool:
        own, *others = (kernel.once_s[self.case.name] for kernel in self.kernels)
        seconds, times = _LOST
        return bool(others) and own > max(seconds, times * others[0])

    def _enough(self, fewest: int, elapsed_s: float) -> bool:
        """On a quiet machine a fixed number or time; up to twice that while most turns are disturbed or say nothing."""
        if self.rounds % self._stride == 0 and self._hopeless(self.rounds // self._stride):
            return True
        if self._lost and self.rounds:
            return True
        if self.rounds < fewest:
            return self.rounds > 0 and self.kernels[0].budget.left_s <= 0
        if self.rounds >= 2 * self.wanted_rounds or elapsed_s > 2 * self.case_s:
            return True
        return (self.rounds >= self.wanted_rounds or elapsed_s > self.case_s) and self._quiet

    def _hopeless(self, looks: int) -> bool:
        return any(looks >= look and _slower(self.kernels, times) for look, times in _HOPELESS)

    @property
    def _quiet(self) -> bool:
        return all(kernel.quiet for kernel in self.kernels)


def _slower(kernels: list[TimedKernel], times: float) -> bool:
    """Clearly slower than the incumbent: even its good turns are behind the incumbent's usual ones."""
    if len(kernels) < 2 or not (kernels[0].samples.us and kernels[1].samples.us):
        return False
    own, incumbent = kernels[0].samples.us, kernels[1].samples.us
    return statistics.low(own) > times * statistics.middle(incumbent)
