"""Kernels against each other on a GPU: turns of several calls behind a gate, their events held against two clocks."""

import math
import statistics as plain
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ksflow.judge import statistics
from ksflow.judge.backend import Gear, Json
from ksflow.judge.buffers import Room
from ksflow.judge.cases import Entry, Reference
from ksflow.judge.device import Device, DeviceArea, DeviceBox, Turn
from ksflow.judge.failure import Failure
from ksflow.judge.input_pool import Shelf, Shelves
from ksflow.judge.samples import Samples
from ksflow.judge.sandboxed import Box, Start
from ksflow.judge.session import Host
from ksflow.judge.timing import Contestant, Leg, Race

_SLACK, _SLACK_US = 0.01, 1.25
"""A box's own events may say so much less than the judge's clock less a null call: as a share, and beside that."""
_TRUSTED_SLACK, _TRUSTED_SLACK_US = 0.05, 10.0
"""The same where no code of the kernel's runs on the host: only device code that finds the driver's memory can lie."""
_FORGED, _FORGED_US = 0.05, 6.0
"""Events that say less than that by more are no events of this call: the judge's clock counts alone."""
_NULL = {"language": "null", "files": {}, "artefact": "", "mode": ""}
_PATIENCE_S = 60.0
_FEWEST_ROUNDS = 3
_FEW = 10
_HOARD = 4
"""A box that holds more than this part of the device's memory when the judge has none left is to blame for it."""


@dataclass
class NullCalls:
    """What was found of calls of the null kernel, in us."""

    beside: list[float] = field(default_factory=list)
    """What each call's bracket has beside the call."""
    around: list[float] = field(default_factory=list)
    """The judge's own work around each call."""

    def add(self, more: "NullCalls") -> None:
        self.beside += more.beside
        self.around += more.around


class DeviceGear(Gear):
    """A GPU's."""

    def __init__(self, host: Host, platform: str) -> None:
        self.device = Device(platform)
        self.where = self.device.where
        reads = {"files": self.device.files, "folders": self.device.folders}
        self.host = replace(host, device={"platform": self.device.platform, **reads})
        slots = self.device.slot_memory
        self.device_uuid = self.device.uuid
        self.memory = Shelves(self.where, self.device.stock_memory, slots, 64, large=slots)
        self.latest_null_us = 0.0
        self._null_boxes: dict[str, DeviceBox] = {}
        """By what their process has loaded: a device's context costs more to turn to where torch made it."""

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
        return self.device.lease()

    def release(self) -> None:
        self.device.release()

    def hoarded(self, close: Callable[[], None]) -> bool:
        before = self.device.free()
        close()
        self.device.release()
        return self.device.free() - before > self.device.memory // _HOARD

    def probe(self) -> None:
        self.device.probe()

    def null_turn(self, shelf: Shelf, entries: list[Entry], like: DeviceBox) -> NullCalls:
        """Calls of the null kernel on these contents, in a box like this. Raises Failure."""
        try:
            box = self._null(shelf, like.loaded)
            box.gated = not like.waits
            for slot, entry in enumerate(entries):
                box.fill(slot, entry.packed, 0)
            turn = box.turn(bytes(range(len(entries))), _PATIENCE_S)
        except Failure as failure:  # the next turn has a new box, which owes no answer
            self._end_null(like.loaded)
            if failure.kind == "exit":
                raise Failure("harness", f"the null kernel's box: {failure.text}") from failure
            raise
        found = [whole - call for whole, call in zip(turn.brackets_us, turn.events_us, strict=True)]
        self.latest_null_us = round(plain.median(found), 1)
        if shelf.large:
            box.forget()
        return NullCalls(found, list(turn.around_us))

    def _null(self, shelf: Shelf, loaded: str) -> DeviceBox:
        """The null kernel's box, turned to a case."""
        wanted = Room(shelf.layout.input_bytes * shelf.slots, shelf.layout.output_bytes * shelf.slots)
        box = self._null_boxes.get(loaded)
        if box is None or not box.area.fits(wanted):
            box = self._null_boxes[loaded] = self._open_null(wanted, loaded)
        if box.layout is not shelf.layout:
            box.stage("", shelf.layout, shelf.dims, shelf.slots)
        return box

    def _end_null(self, loaded: str) -> None:
        if box := self._null_boxes.pop(loaded, None):
            box.close()

    def _open_null(self, wanted: Room, loaded: str) -> DeviceBox:
        self._end_null(loaded)
        limits = {"memory_mb": 1024, "check_s": 86400.0, "time_s": 0.0}
        start = self.host.start(_NULL | {"mode": loaded}, limits)
        box = DeviceBox(start, DeviceArea(self.device, wanted))
        box.ready(_PATIENCE_S)
        return box


class DeviceContestant(Contestant):
    """One kernel in its box on the device."""

    def __init__(self, name: str, box: DeviceBox, reference: Reference, limit_s: float) -> None:
        super().__init__(name, box, reference, limit_s)
        self.device_box = box
        self.nulls: dict[tuple[str, bool], NullCalls] = {}
        """By what the null kernel's process had loaded, and whether its calls were queued ahead."""
        self._turns: list[Turn] = []

    def begin(self, shelf: Shelf, null: Any) -> None:
        super().begin(shelf, null)
        self.device_box.rest()

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

    def _conclude(self) -> None:
        """The box's own times, and on top of them what the judge's clock saw beyond the slack.

        Both are compared by the figure that is ranked, so that false times of some calls gain no more than of all.
        """
        gated = self._turns[-1].gated
        null = self.nulls.get((self.device_box.loaded, gated)) or next(iter(self.nulls.values()))
        usual = statistics.low(null.beside, self.samples.window)
        most_around = max(null.around) if len(null.around) < _FEW else plain.quantiles(null.around, n=10)[-1]
        seen = [
            max(bracket - usual + max(around - most_around, 0.0), 1e-2)
            for turn in self._turns
            for bracket, around in zip(turn.brackets_us, turn.around_us, strict=True)
        ]
        share, more = (_TRUSTED_SLACK, _TRUSTED_SLACK_US) if self.device_box.trusted else (_SLACK, _SLACK_US)
        least, claim = (statistics.low(samples, self.samples.window) for samples in (seen, self.samples.us))
        believed = gated and least <= claim * (1 + _FORGED) + max(_FORGED_US, more)
        excess = max(least - claim * (1 + share) - more, 0.0) if believed else max(least - claim, 0.0)
        self.samples.wall = seen
        self.samples.us = [us + excess for us in self.samples.us]
        self.samples.notes = {
            "clock": "device events" if not excess else "device events and what the judge's clock saw beyond them",
            "trusted": self.device_box.trusted,
            "events_us": round(claim, 3),
            "bracket_us": round(least, 3),
            "added_us": round(excess, 3),
            "gated": gated,
        }


class DeviceRace(Race):
    """One case on the device."""

    case_s = 0.4
    rounds_of: ClassVar[dict[int, int]] = {1: 8, 2: 5, 3: 4}
    turn_us = 1e3
    most_calls = 16

    def __init__(
        self, gear: DeviceGear, shelf: Shelf, racers: list[Contestant], feed: Iterator[Entry], leg: Leg
    ) -> None:
        super().__init__(shelf, racers, feed, None, leg)
        self._gear = gear
        self._nulls: dict[tuple[str, bool], NullCalls] = {}

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
        boxes = [contestant.box for contestant in self.racing if isinstance(contestant.box, DeviceBox)]
        for kind, box in {(box.loaded, not box.waits): box for box in boxes}.items():
            self._nulls.setdefault(kind, NullCalls()).add(self._gear.null_turn(self.shelf, entries, box))

    def _room(self, fastest: float) -> int:
        calls = max(min(math.ceil(self.turn_us * 1e-6 / fastest), self.most_calls, self.shelf.slots - 1), 1)
        self.wanted_rounds = max(self.wanted_rounds * self.most_calls // max(calls, self.most_calls), _FEWEST_ROUNDS)
        return calls
