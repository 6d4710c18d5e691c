"""Kernels against each other on a GPU: turns of several calls behind a gate, their events held against two clocks."""

import math
import statistics as plain
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

from ksflow.stages.evaluator.judge import statistics
from ksflow.stages.evaluator.judge.area import Room
from ksflow.stages.evaluator.judge.box import Box, Start
from ksflow.stages.evaluator.judge.cases import Entry, Reference
from ksflow.stages.evaluator.judge.device import Device, DeviceArea, DeviceBox, Turn
from ksflow.stages.evaluator.judge.failure import Failure
from ksflow.stages.evaluator.judge.gear import Gear, Json
from ksflow.stages.evaluator.judge.session import Host
from ksflow.stages.evaluator.judge.stock import Shelf, Shelves
from ksflow.stages.evaluator.judge.timing import Contestant, Leg, Race, Samples

_SLACK = 0.05
"""A box's events may say so much less than the judge's clock less the median null turn."""
_SLACK_US = 120.0
"""And so much less for a whole turn."""
_NULL = {"language": "null", "files": {}, "artefact": "", "mode": ""}
_PATIENCE_S = 60.0
_FEWEST_ROUNDS = 3


class DeviceGear(Gear):
    """A GPU's."""

    def __init__(self, host: Host, platform: str) -> None:
        self.device = Device(platform)
        self.where = self.device.where
        reads = {"files": self.device.files, "folders": self.device.folders}
        self.host = replace(host, device={"platform": self.device.platform, **reads})
        slots = self.device.slot_memory
        self.memory = Shelves(self.where, self.device.stock_memory, slots, 64, large=slots)
        self.latest_null_us = 0.0
        self._null_box: DeviceBox | None = None

    def area(self, wanted: Room) -> DeviceArea:
        return DeviceArea(self.device, wanted)

    def box(self, start: Start, area: Any) -> Box:
        return DeviceBox(start, area)

    def contestant(self, name: str, box: Box, reference: Reference, limit_s: float) -> Contestant:
        assert isinstance(box, DeviceBox)
        return DeviceContestant(name, box, reference, limit_s)

    def race(self, shelf: Shelf, racers: list[Contestant], feed: Iterator[Entry], leg: Leg) -> Race:
        return DeviceRace(self, shelf, racers, feed, leg)

    def evidence(self) -> Json:
        return {
            "device": self.device.name,
            "clocks": self.device.state(),
            "transfer": {
                "how": "device memory shared with the box; the judge writes inputs and takes outputs on the device, "
                "outside the timed window; cache flushed before every turn, inputs rotated within it",
                "null_turn_us": self.latest_null_us,
            },
        }

    def lease(self) -> AbstractContextManager[None]:
        lease: AbstractContextManager[None] = self.device.lease()
        return lease

    def release(self) -> None:
        self.device.release()

    def probe(self) -> None:
        self.device.probe()

    def null_turn(self, shelf: Shelf, entries: list[Entry], gated: bool) -> float:
        """What a turn on these contents takes beside its calls, in seconds. Raises Failure."""
        try:
            box = self._null(shelf)
            box.gated = gated
            for slot, entry in enumerate(entries):
                box.fill(slot, entry.packed, 0)
            turn = box.turn(bytes(range(len(entries))), _PATIENCE_S)
        except Failure as failure:  # the next turn has a new box, which owes no answer
            self._end_null()
            if failure.kind == "exit":
                raise Failure("harness", f"the null kernel's box: {failure.text}") from failure
            raise
        seconds = turn.seconds - sum(turn.events_us) * 1e-6
        self.latest_null_us = round(seconds * 1e6, 1)
        if shelf.large:
            box.forget()
        return seconds

    def _null(self, shelf: Shelf) -> DeviceBox:
        """The null kernel's box, turned to a case."""
        wanted = Room(shelf.layout.input_bytes * shelf.slots, shelf.layout.output_bytes * shelf.slots)
        if self._null_box is None or not self._null_box.area.fits(wanted):
            self._null_box = self._open_null(wanted)
        if self._null_box.layout is not shelf.layout:
            self._null_box.stage("", shelf.layout, shelf.dims, shelf.slots)
        return self._null_box

    def _end_null(self) -> None:
        if self._null_box is not None:
            self._null_box.close()
        self._null_box = None

    def _open_null(self, wanted: Room) -> DeviceBox:
        self._end_null()
        limits = {"memory_mb": 1024, "check_s": 86400.0, "time_s": 0.0}
        start = self.host.start(_NULL, limits)
        box = DeviceBox(start, DeviceArea(self.device, wanted))
        box.ready(_PATIENCE_S)
        return box


class DeviceContestant(Contestant):
    """One kernel in its box on the device."""

    def __init__(self, name: str, box: DeviceBox, reference: Reference, limit_s: float) -> None:
        super().__init__(name, box, reference, limit_s)
        self.device_box = box
        self.nulls: dict[bool, list[float]] = {}
        """Seconds of the null turns that came with this case's turns, by whether they were gated."""
        self._turns: list[Turn] = []

    def begin(self, shelf: Shelf, null: Any) -> None:
        super().begin(shelf, null)
        self.forget()

    def warm_up(self, contents: Iterator[Entry], shelf: Shelf, null: Any) -> None:
        """Ungated, because a first call may compile, allocate and wait."""
        self.device_box.gated = False
        super().warm_up(contents, shelf, null)
        self.device_box.gated = True

    def turn(self, entries: list[Entry]) -> float:
        slots = self.caller.fill(entries)
        with self.patience.waiting() as left_s:
            turn = self.device_box.turn(slots, left_s)
        self.caller.take(slots, entries)
        if self._turns and self._turns[-1].gated != turn.gated:
            self.forget()
        self._turns.append(turn)
        self.samples.us += turn.events_us
        return max(plain.median(turn.events_us) * 1e-6, 1e-8)

    def forget(self) -> None:
        self._turns = []
        self.samples = Samples(window=statistics.MIDDLE)

    def end(self) -> None:
        """Hold what the box says against the judge's clock; look at what is still held. Raises Failure, Rejected."""
        if self.nulls and self._turns:
            self._conclude()
        self.caller.share_of_bound()
        self.caller.close()

    def _settle(self) -> None:
        """Nothing is booked late."""

    def _conclude(self) -> None:
        gated = self._turns[-1].gated
        null = self.nulls.get(gated) or self.nulls[not gated]
        low, middle, _ = plain.quantiles(null, n=4, method="inclusive") if len(null) > 1 else null * 3
        walls = [max(turn.seconds - low, 1e-8) / len(turn.events_us) * 1e6 for turn in self._turns]
        least = plain.median((turn.seconds - middle) / len(turn.events_us) * 1e6 for turn in self._turns)
        claim = plain.median(plain.fmean(turn.events_us) for turn in self._turns)
        agrees = least <= claim * (1 + _SLACK) + _SLACK_US / len(self._turns[-1].events_us)
        believed = agrees or self.device_box.trusted
        self.samples.wall = [wall for wall, turn in zip(walls, self._turns, strict=True) for _ in turn.events_us]
        if not believed:
            self.samples.us = list(self.samples.wall)
        self.samples.notes = {
            "clock": "device events" if believed else "the judge's, because the box's events say less",
            "trusted": self.device_box.trusted,
            "events_us": round(claim, 3),
            "bracket_us": round(plain.median(walls), 3),
            "gated": gated,
        }


class DeviceRace(Race):
    """One case on the device."""

    case_s = 0.4
    rounds_of: ClassVar[dict[int, int]] = {1: 8, 2: 5, 3: 4}
    turn_us = 1e3
    long_turn_us = 3e3
    """Where a kernel's own host code keeps the events, so that the slack is a small part of a turn."""
    most_calls, most_in_long = 24, 64

    def __init__(
        self, gear: DeviceGear, shelf: Shelf, racers: list[Contestant], feed: Iterator[Entry], leg: Leg
    ) -> None:
        super().__init__(shelf, racers, feed, None, leg)
        self._gear = gear
        self._nulls: dict[bool, list[float]] = {}

    def run(self) -> None:
        for contestant in self.racing:
            assert isinstance(contestant, DeviceContestant)
            contestant.nulls = self._nulls
        super().run()

    def _null(self, calls: int) -> Any:
        """Measured with every round."""
        return None

    def _contents(self, count: int) -> list[Entry]:
        """Where memory is short, what making them took is given back, so that the boxes can have it."""
        entries = super()._contents(count)
        if self.shelf.large:
            self._gear.release()
        return entries

    def _turns(self, entries: list[Entry]) -> None:
        """And a null turn of each kind that is needed, on the same contents."""
        super()._turns(entries)
        boxes = [contestant.box for contestant in self.racing]
        for gated in {not box.waits for box in boxes if isinstance(box, DeviceBox)}:
            self._nulls.setdefault(gated, []).append(self._gear.null_turn(self.shelf, entries, gated))

    def _room(self, fastest: float) -> int:
        boxes = [contestant.box for contestant in self.racing]
        trusted = all(isinstance(box, DeviceBox) and box.trusted for box in boxes)
        wanted = math.ceil((self.turn_us if trusted else self.long_turn_us) * 1e-6 / fastest)
        calls = max(min(wanted, self.most_calls if trusted else self.most_in_long, self.shelf.slots - 1), 1)
        self.wanted_rounds = max(self.wanted_rounds * self.most_calls // max(calls, self.most_calls), _FEWEST_ROUNDS)
        return calls
