"""How fast is it? Contestants take turns in their own boxes, there and back (A B B A), on one core.

A turn is K calls on K slots that hold other contents than last time; the judge's wall clock brackets it, and what a
null kernel costs is taken off. CPU time says which turns were preempted; CPU time beyond the wall time is charged.
Inputs were just written from another core, so they are cold in the box's own caches and warm in a shared one.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ksflow.stages.evaluator.judge import statistics
from ksflow.stages.evaluator.judge.bound import same_bytes
from ksflow.stages.evaluator.judge.box import Box, Failure
from ksflow.stages.evaluator.judge.cases import Entry
from ksflow.stages.evaluator.judge.check import Rejected, inspect
from ksflow.stages.evaluator.judge.overhead import Overhead
from ksflow.stages.evaluator.judge.suite import Item

_TURN_S = 0.001
_ROUNDS = 25
_MOST_ROUNDS = 40
_CASE_S = 0.25
_SLOW_S = 0.1
_HOPELESS = ((2, 3.0), (6, 1.3))
"""After so many rounds, a kernel so many times slower than the incumbent has had its chance."""
_OFF_CLOCK_S = 100e-6
_REPLAY = 1.5
_REPLAY_TRIALS = 10
_BLINK_US = 30.0

_draw = random.SystemRandom()


@dataclass(frozen=True)
class Turn:
    """A turn whose CPU time is not booked yet."""

    calls: int
    wall_s: float
    clock_s: float


@dataclass
class Samples:
    """Per call, in µs, one per round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    charged: list[float] = field(default_factory=list)
    """Per turn: CPU time beyond the wall time."""

    @property
    def calm(self) -> int:
        """How many were not preempted."""
        return sum(map(statistics.calm, self.wall, self.cpu))

    def statistic(self) -> tuple[float, float]:
        """Wall and CPU time per call."""
        keep = statistics.undisturbed(self.wall, self.cpu)
        return statistics.low(statistics.pick(self.wall, keep)), statistics.low(statistics.pick(self.cpu, keep))


class Contestant:
    """One kernel in its box, on one case."""

    def __init__(self, name: str, box: Box, item: Item, overhead: Overhead, deadline: float) -> None:
        self.name = name
        self.box = box
        self.item = item
        self.overhead = overhead
        self.deadline = deadline
        self.samples = Samples()
        self.calls = 1
        self._held: list[Entry | None] = [None] * item.slots
        self._cursor = 0
        self._unseen = _draw.sample(item.entries, len(item.entries))
        self._right: dict[int, torch.Tensor] = {}
        self._open: Turn | None = None
        box.stage(item.layout, item.dims, item.slots)

    def turn(self, entries: list[Entry] | None = None) -> float:
        """One turn on pool contents, or on these; wall seconds per call. Raises Failure, Rejected."""
        count = len(entries) if entries else self.calls
        slots = [(self._cursor + step) % self.item.slots for step in range(count)]
        self._cursor = (self._cursor + count) % self.item.slots
        given = entries or [self._choose(slot) for slot in slots]
        filled = dict(zip(slots, given, strict=True))
        for slot, entry in filled.items():
            self._held[slot] = entry
            self.box.fill(slot, entry)
        self.settle()
        clock = self.box.cpu_s()
        wall = self.box.go(bytes(slots), max(self.deadline - time.monotonic(), 0.0))
        wall = max(wall - self.overhead.seconds(count), 1e-8)
        self._open = Turn(count, wall, clock)
        for slot, entry in filled.items():
            self._verify(slot, entry)
        return wall / count

    def settle(self) -> None:
        """Make a sample of the last turn. The kernel books a process' CPU time when it blocks, so this waits for that.

        One core is what a kernel may use: CPU time above the wall time, spent on other cores or between turns, is
        added to it.
        """
        if self._open is None:
            return
        turn, self._open = self._open, None
        cpu = self.box.cpu_s() - turn.clock_s
        extra = max(cpu - turn.wall_s - _OFF_CLOCK_S, 0.0)
        self.samples.wall.append((turn.wall_s + extra) / turn.calls * 1e6)
        self.samples.cpu.append(cpu / turn.calls * 1e6)
        self.samples.charged.append(extra * 1e6)

    def probe(self, entry: Entry) -> float:
        """The µs of one call on these contents, outside of the samples: wall time, or CPU time when preempted."""
        self.settle()
        kept, self.samples = self.samples, Samples()
        self.turn([entry])
        self.settle()
        once, self.samples = self.samples, kept
        calm = statistics.calm(once.wall[0], once.cpu[0])
        return max(once.wall[0] if calm else once.cpu[0], _BLINK_US)

    def warm_up(self) -> float:
        """First calls, then how many calls a turn takes; seconds of a turn."""
        once = self.turn()
        if once > _SLOW_S:
            return once
        once = min(self.turn(), self.turn())
        self.settle()
        self.calls = max(min(round(_TURN_S / once), self.item.slots), 1)
        self.samples = Samples()
        return once * self.calls

    @property
    def unseen_left(self) -> bool:
        """Whether every call so far was on contents of its own."""
        return bool(self._unseen)

    def _choose(self, slot: int) -> Entry:
        """Contents that were never seen while there are any; else others than the slot's last."""
        if self._unseen:
            return self._unseen.pop()
        others = [entry for entry in self.item.entries if entry is not self._held[slot]]
        return _draw.choice(others or self.item.entries)

    def _verify(self, slot: int, entry: Entry) -> None:
        """Check an output; the same bytes for the same contents need not be checked again."""
        region = self.box.region(slot, out=True)
        known = self._right.get(id(entry))
        if known is not None and same_bytes(known, region):
            if not same_bytes(self.box.region(slot, out=False), entry.packed):
                inspect(self.box, slot, self.item, entry)
            return
        copy = region.clone()
        inspect(self.box, slot, self.item, entry)
        self._right[id(entry)] = copy


class Race:
    """One case: the first contestant against the others, who are dropped when they fail."""

    def __init__(self, contestants: list[Contestant], fresh: Callable[[], Entry]) -> None:
        self.racing = contestants
        self.dropped: dict[str, str] = {}
        self._fresh = fresh

    def run(self) -> None:
        """Warm up, take turns, look for a replay. Raises Failure, Rejected of the first contestant only."""
        turn_s = sum(self._try(contestant, Contestant.warm_up) for contestant in list(self.racing))
        fewest = 1 if turn_s > _SLOW_S else 3
        order, started, rounds = list(self.racing), time.monotonic(), 0
        while rounds < fewest or not self._enough(rounds, time.monotonic() - started):
            for contestant in order:
                self._try(contestant, Contestant.turn)
            order = [contestant for contestant in reversed(order) if contestant in self.racing]
            rounds += 1
            if time.monotonic() > self.racing[0].deadline:
                break
        for contestant in self.racing:
            contestant.settle()
        _against_replay(self.racing[0], self._fresh)

    def _enough(self, rounds: int, elapsed_s: float) -> bool:
        """On a quiet machine a fixed number or time; up to twice that while most turns are disturbed."""
        if any(rounds >= look and _slower(self.racing, times) for look, times in _HOPELESS):
            return True
        if rounds >= _MOST_ROUNDS or elapsed_s > 2 * _CASE_S:
            return True
        quiet = all(2 * contestant.samples.calm >= rounds for contestant in self.racing)
        return quiet and (rounds >= _ROUNDS or elapsed_s > _CASE_S)

    def _try(self, contestant: Contestant, move: Callable[[Contestant], float]) -> float:
        try:
            return move(contestant)
        except (Failure, Rejected) as error:
            if contestant is self.racing[0]:
                raise
            self.racing.remove(contestant)
            self.dropped[contestant.name] = str(error)
            return 0.0


def _slower(contestants: list[Contestant], times: float) -> bool:
    """Clearly slower than the incumbent: even its good turns are behind the incumbent's usual ones."""
    if len(contestants) < 2:
        return False
    own, incumbent = contestants[0].samples.wall, contestants[1].samples.wall
    return statistics.low(own) > times * sorted(incumbent)[len(incumbent) // 2]


def _against_replay(contestant: Contestant, fresh: Callable[[], Entry]) -> None:
    """Contents it has never seen must not take clearly longer than those it has. Raises Rejected, Failure."""
    if contestant.unseen_left:
        return
    reserve = list(contestant.item.reserve)
    novel: list[float] = []
    seen: list[float] = []
    for _ in range(_REPLAY_TRIALS):
        novel.append(contestant.probe(reserve.pop() if reserve else fresh()))
        seen.append(contestant.probe(_draw.choice(contestant.item.entries)))
        ratio = min(novel) / statistics.middle(seen)  # noise alone never makes every one of many slow
        if ratio < _REPLAY:
            return
    reason = f"{contestant.item.name}: {ratio:.1f} times faster on contents that it has seen"
    evidence = {"novel_us": [round(us, 1) for us in novel], "seen_us": [round(us, 1) for us in seen]}
    raise Rejected("reject-cheat", reason, {"replay": evidence})


def row(contestant: Contestant) -> dict[str, Any]:
    """The timing as the request's sender wants it."""
    wall, cpu = contestant.samples.statistic()
    return {
        "case": contestant.item.name,
        "us": round(wall, 3),
        "samples_us": [round(sample, 3) for sample in contestant.samples.wall[:40]],
        "cpu_us": round(cpu, 3),
    }
