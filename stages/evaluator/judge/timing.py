"""How fast is it? Contestants take turns in their own boxes, round and round, on one core.

The order stays the same for half a leg and is the reverse for the other half. So a turn comes after another kernel's
(half of the turns after oneself, as in A B B A, would find warm caches, and the one in the middle of three never), and
of two kernels that share libraries each comes after the other as often as it goes before.

A turn is K calls on K contents that none of the boxes has seen; in one round all contestants get the same. Two clocks
measure it, and the larger one counts: the judge's wall clock around the turn, less what a null kernel takes, and the
CPU time that the box's process spent from the moment its inputs began to appear until those of its next turn do, less
a null kernel's. So work done ahead of the signal, after the answer or on other cores is paid for like any other.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from ksflow.stages.evaluator.judge import statistics
from ksflow.stages.evaluator.judge.box import Box
from ksflow.stages.evaluator.judge.cases import Entry, Reference
from ksflow.stages.evaluator.judge.check import Caller, Patience, Rejected
from ksflow.stages.evaluator.judge.failure import Failure
from ksflow.stages.evaluator.judge.overhead import Null, Overhead
from ksflow.stages.evaluator.judge.stock import Shelf

_SLOW_S = 0.02
_LONG_S = 0.1
_HOPELESS = ((3, 3.0), (7, 1.3))
"""After so many rounds, a kernel so many times slower than the incumbent has had its chance."""
_LOST = (0.005, 5.0)
"""First calls that say so at once: so many seconds each, and so many times the incumbent's."""
_WARM_UPS, _FEWEST_WARM_UPS = 3, 2


@dataclass(frozen=True)
class Turn:
    """A turn whose CPU time is not booked yet."""

    calls: int
    wall_s: float
    clock_s: float


@dataclass
class Samples:
    """Per call, in µs, one per round."""

    us: list[float] = field(default_factory=list)
    """What counts: the larger of the two clocks."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    window: tuple[float, float] = statistics.LOW
    """Which part of the sorted samples is ranked."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What else is known of how they were taken."""

    @property
    def calm(self) -> list[bool]:
        """Which were not preempted; all, where no CPU time is taken."""
        if not self.cpu:
            return [True] * len(self.us)
        return list(map(statistics.calm, self.wall, self.cpu))

    def low(self) -> float:
        """What is ranked."""
        return statistics.low(statistics.pick(self.us, self.calm), self.window)


class Contestant:
    """One kernel in its box."""

    def __init__(self, name: str, box: Box, reference: Reference, limit_s: float) -> None:
        self.name = name
        self.box = box
        self.samples = Samples()
        self.once_s: dict[str, float] = {}
        self._reference = reference
        self.patience = Patience(limit_s)
        self._open: Turn | None = None
        self._null = Null(0.0, 0.0, 0.0, 0.0)
        self.caller: Caller

    def begin(self, shelf: Shelf, null: Null) -> None:
        """Turn to a case. Raises Failure."""
        self.caller = Caller(self.box, shelf, self._reference)
        self._null = null
        self.samples = Samples()

    def warm_up(self, contents: Iterator[Entry], shelf: Shelf, null: Null) -> None:
        """First calls on a case, a call a turn: how long one takes. Raises Failure, Rejected.

        The very first may compile what it calls, so it alone tells nothing.
        """
        self.begin(shelf, null)
        for number, entry in enumerate(contents):
            self.once_s[shelf.name] = self.turn([entry])
            if number and self.once_s[shelf.name] > _SLOW_S:
                break
        self.end()

    def turn(self, entries: list[Entry]) -> float:
        """One turn; wall seconds per call. Raises Failure, Rejected."""
        self._settle()
        clock = self.box.cpu_s()
        slots = self.caller.fill(entries)
        with self.patience.waiting() as left_s:
            wall = self.box.go(slots, left_s)
        wall = max(wall - self._null.wall_p10, 1e-8)
        self.caller.take(slots, entries)
        self._open = Turn(len(entries), wall, clock)
        return wall / len(entries)

    def forget(self) -> None:
        """What was timed so far was to warm up."""
        self._settle()
        self.samples = Samples()

    def end(self) -> None:
        """Book the last turn and look at what is still held. Raises Failure, Rejected."""
        self._settle()
        self.caller.share_of_bound()
        self.caller.close()

    def _settle(self) -> None:
        if self._open is None:
            return
        turn, self._open = self._open, None
        cpu = max(self.box.cpu_s() - turn.clock_s - self._null.cpu_p90, 0.0)
        for row, seconds in (
            (self.samples.wall, turn.wall_s),
            (self.samples.cpu, cpu),
            (self.samples.us, max(turn.wall_s, cpu)),
        ):
            row.append(seconds / turn.calls * 1e6)


@dataclass(frozen=True)
class Leg:
    """One of several times round, in fresh processes."""

    number: int = 0
    of: int = 1


class Race:
    """One case: the first contestant against the others, who are dropped when they fail."""

    turn_s = 120e-6
    """A turn has as many calls as fill so much time."""
    case_s = 0.25
    """In a leg; up to twice as long while the machine is busy."""
    rounds_of: ClassVar[dict[int, int]] = {1: 32, 2: 24, 3: 16}
    """In each of so many legs; up to twice as many while the machine is busy."""

    def __init__(
        self, shelf: Shelf, contestants: list[Contestant], feed: Iterator[Entry], overhead: Overhead | None, leg: Leg
    ) -> None:
        self.leg = leg
        self.wanted_rounds = self.rounds_of[leg.of]
        self.shelf = shelf
        self.racing = contestants
        self.dropped: dict[str, str] = {}
        self.rounds = 0
        self.calls = 1
        self.contents: list[int] = []
        self.whole = 0
        self._feed = feed
        self._overhead = overhead

    def warm_up(self) -> None:
        """First calls of every contestant, while they may still start processes."""
        entries = self._contents(_FEWEST_WARM_UPS if self.shelf.large else _WARM_UPS)
        null = self._null(1)
        self._each(lambda contestant: contestant.warm_up(iter(entries), self.shelf, null))

    def run(self) -> None:
        """Take turns. Raises Failure, Rejected of the first contestant only."""
        fastest = min(contestant.once_s[self.shelf.name] for contestant in self.racing)
        self.calls = self._room(fastest)
        null = self._null(self.calls)
        turn_s = self.calls * sum(contestant.once_s[self.shelf.name] for contestant in self.racing)
        self._each(lambda contestant: contestant.begin(self.shelf, null))
        if turn_s < _SLOW_S:
            self._round()
            self._each(lambda contestant: contestant.forget())
        fewest, started = 1 if turn_s > _LONG_S else 3, time.monotonic()
        while not self._enough(fewest, time.monotonic() - started):
            self._round()
            self.rounds += 1
        self._each(lambda contestant: contestant.end())
        self.shelf.wanted = max(_WARM_UPS + (self.wanted_rounds + 2) * self.calls, self.shelf.wanted // 2)

    # -- inside ----------------------------------------------------------------------------------

    def _null(self, calls: int) -> Any:
        """What a turn of so many calls costs when nothing is done in it."""
        assert self._overhead is not None
        return self._overhead.of(calls)

    def _room(self, fastest: float) -> int:
        """How many calls a turn has, when one takes so many seconds."""
        return max(min(math.ceil(self.turn_s / fastest), self.shelf.slots // 2), 1)

    def _contents(self, count: int) -> list[Entry]:
        entries = list(islice(self._feed, count))
        self.contents += [entry.number for entry in entries]
        self.whole += sum(all(want.sample is None for want in entry.expected) for entry in entries)
        return entries

    def _round(self) -> None:
        self._turns(self._contents(self.calls))

    def _turns(self, entries: list[Entry]) -> None:
        """All on the same contents."""
        self._each(lambda contestant: contestant.turn(entries))

    def _each(self, move: Callable[[Contestant], object]) -> None:
        first = self.leg.number % len(self.racing)
        order = self.racing[first:] + self.racing[:first]
        for contestant in order[::-1] if 2 * self.rounds >= self.wanted_rounds else order:
            self._try(contestant, move)

    def _try(self, contestant: Contestant, move: Callable[[Contestant], object]) -> None:
        if contestant not in self.racing:
            return
        try:
            move(contestant)
        except (Failure, Rejected) as error:
            if contestant is self.racing[0]:
                raise
            self.racing.remove(contestant)
            contestant.box.close()
            self.dropped[contestant.name] = str(error)

    @property
    def _lost(self) -> bool:
        own, *others = (contestant.once_s[self.shelf.name] for contestant in self.racing)
        seconds, times = _LOST
        return bool(others) and own > max(seconds, times * others[0])

    def _enough(self, fewest: int, elapsed_s: float) -> bool:
        """On a quiet machine a fixed number or time; up to twice that while most turns are disturbed."""
        if any(self.rounds >= look and _slower(self.racing, times) for look, times in _HOPELESS):
            return True
        if self._lost and self.rounds:
            return True
        if self.rounds < fewest:
            return self.rounds > 0 and self.racing[0].patience.left_s <= 0
        if self.rounds >= 2 * self.wanted_rounds or elapsed_s > 2 * self.case_s:
            return True
        quiet = all(2 * sum(contestant.samples.calm) >= self.rounds - 1 for contestant in self.racing)
        return quiet and (self.rounds >= self.wanted_rounds or elapsed_s > self.case_s)


def _slower(contestants: list[Contestant], times: float) -> bool:
    """Clearly slower than the incumbent: even its good turns are behind the incumbent's usual ones."""
    if len(contestants) < 2 or not (contestants[0].samples.us and contestants[1].samples.us):
        return False
    own, incumbent = contestants[0].samples.us, contestants[1].samples.us
    return statistics.low(own) > times * statistics.middle(incumbent)
