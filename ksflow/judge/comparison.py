"""Kernels against each other over every timed case, in legs: fresh processes, warm-up, one process each, races.

Where memory lies moves a time by several per cent, and a process keeps its place for life. So in every leg each kernel
runs in a new process, and they change places: each has been where each other was.
"""

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ksflow.judge import figures
from ksflow.judge.backend import Gear
from ksflow.judge.buffers import Area
from ksflow.judge.check import Rejected
from ksflow.judge.failure import Failure
from ksflow.judge.figures import Lap, Laps
from ksflow.judge.input_pool import Stock
from ksflow.judge.sandboxed import Box
from ksflow.judge.timing import Contestant, Leg

Json = dict[str, Any]
Opener = Callable[[Json, Area], Box]

_MOST_LEGS = 3
_BEHIND = 0.8
"""A kernel that is surely slower than this needs no second leg."""
_LEG_S = 3.0
"""Nor one that takes so long to start and to run that placement is the smallest of its troubles."""


@dataclass
class Outcome:
    """What came of it."""

    cases: list[Laps]
    rows: list[Json] = field(default_factory=list)
    """Per case, of the first kernel."""
    ratios: dict[str, Json] = field(default_factory=dict)
    """Of the first kernel to each other one."""
    skipped: dict[str, str] = field(default_factory=dict)
    locked: bool = True

    def with_more(self, more: "Outcome", name: str) -> "Outcome":
        """This and another contest of the same kernels, their legs together."""
        both = self._joined(more, name)
        found = {other: both.ratio(name, other) for other in self.ratios.keys() & more.ratios.keys()}
        both.ratios = {other: row for other, row in found.items() if row}
        return both

    def beside(self, more: "Outcome", name: str) -> "Outcome":
        """This and a contest of the same kernel with others."""
        both = self._joined(more, name)
        both.ratios = self.ratios | more.ratios
        both.skipped = self.skipped | more.skipped
        both.locked = self.locked and more.locked
        return both

    def _joined(self, more: "Outcome", name: str) -> "Outcome":
        pairs = zip(self.cases, more.cases, strict=True)
        both = Outcome([Laps(own.case, own.laps + other.laps) for own, other in pairs])
        both.rows = [laps.row(name) for laps in both.cases]
        return both

    def doubt(self, *names: str) -> str:
        """Why the times of some kernels rank nothing; empty where they do."""
        return next((doubt for laps in self.cases for name in names if (doubt := laps.doubt(name))), "")

    def ratio(self, first: str, other: str) -> Json | None:
        """Of any two."""
        return figures.ratio(self.cases, first, other)


class Contest:
    """The first kernel's failures are raised; the others are skipped where they fail. `at` is told of every case."""

    def __init__(self, stock: Stock, gear: Gear, kernels: dict[str, Json], at: Callable[[str], None]) -> None:
        self.stock = stock
        self.gear = gear
        self.kernels = kernels
        self.at = at
        self.first = next(iter(kernels))
        self.legs = min(len(kernels), _MOST_LEGS)
        self.outcome = Outcome([Laps(shelf.case) for shelf in stock.benchmarks])
        self._limits: Json = stock.problem["limits"]

    def run(self, own: Callable[[Area], AbstractContextManager[Box]], opener: Opener, uses: int) -> Outcome:
        """Race on every case in every leg. Raises Rejected, Failure of the first kernel."""
        if self.stock.large:
            self.gear.release()
        areas = self.stock.areas(len(self.kernels))
        for leg in range(self.legs):
            started = time.monotonic()
            with contextlib.ExitStack() as stack:
                others = {
                    name: stack.enter_context(opener(self.kernels[name], areas[(place + leg) % len(areas)]))
                    for place, name in enumerate(self.kernels)
                    if place and name not in self.outcome.skipped
                }  # they start while the first one does
                boxes = {self.first: stack.enter_context(own(areas[leg % len(areas)]))}
                for name, box in others.items():
                    self._admit(boxes, name, box)
                self._leg(boxes, Leg(leg, self.legs), uses)
            found = {name: self.outcome.ratio(self.first, name) for name in list(self.kernels)[1:]}
            self.outcome.ratios = {name: row for name, row in found.items() if row and name not in self.outcome.skipped}
            if self._settled(time.monotonic() - started):
                break
        self._conclude()
        return self.outcome

    def _admit(self, boxes: dict[str, Box], name: str, box: Box) -> None:
        try:
            box.ready(self._limits["check_s"])
            boxes[name] = box
        except Failure as failure:
            box.close()
            self.outcome.skipped[name] = failure.text

    def _leg(self, boxes: dict[str, Box], leg: Leg, uses: int) -> None:
        limit_s, reference = self._limits["time_s"], self.stock.reference
        racers = [self.gear.contestant(name, box, reference, limit_s) for name, box in boxes.items()]
        races = [self.gear.race(shelf, racers, shelf.feed(uses), leg) for shelf in self.stock.benchmarks]
        for race in races:
            self.at(race.shelf.name)
            race.warm_up()
            self.outcome.skipped |= race.dropped
        self._lock(racers)
        for race, laps in zip(races, self.outcome.cases, strict=True):
            self.at(race.shelf.name)
            race.run()
            self.outcome.skipped |= race.dropped
            laps.laps.append(Lap.of(race))

    def _lock(self, racers: list[Contestant]) -> None:
        for contestant in list(racers):
            try:
                self.outcome.locked &= contestant.box.alone()
            except Failure as failure:
                if contestant is racers[0]:
                    raise
                racers.remove(contestant)
                contestant.box.close()
                self.outcome.skipped[contestant.name] = failure.text

    def _conclude(self) -> None:
        """The times. Raises Rejected for one that cannot be."""
        outcome = self.outcome
        outcome.rows = [laps.row(self.first) for laps in outcome.cases]
        for row in outcome.rows:
            if row["impossible"]:
                most, least = f"{row['at_most_us']:g} µs at most", f"{row['floor_us']:.3g} µs here: "
                reason = f"{row['case']}: {most}, but it takes at least {least}"
                raise Rejected("reject-impossible", reason + row["floor"], {"timed": outcome.rows})

    def _settled(self, leg_s: float) -> bool:
        if not self.outcome.ratios or leg_s > _LEG_S:
            return True
        return bool(next(iter(self.outcome.ratios.values()))["high"] < _BEHIND)
