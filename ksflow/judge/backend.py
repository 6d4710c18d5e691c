"""What judging on a CPU and on a GPU differ in: where contents lie, what a box is, which clocks there are."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ksflow.judge.buffers import Area, Room
from ksflow.judge.cases import Entry, Reference
from ksflow.judge.input_pool import Shelf, Shelves
from ksflow.judge.overhead import Overhead
from ksflow.judge.sandboxed import Box, Start
from ksflow.judge.timing import Contestant, Leg, Race

Json = dict[str, Any]


class Gear:
    """A CPU's. Boxes have shared memory and are frozen between turns; see `timing` for the clocks."""

    where = "cpu"
    device_uuid = ""
    """Names the lock of the GPU (see `device_access`); empty on a CPU."""
    memory = Shelves()

    def __init__(self, overhead: Overhead) -> None:
        self.overhead = overhead

    def area(self, wanted: Room) -> Area:
        """Memory for one box."""
        return Area(wanted)

    def box(self, start: Start, area: Area) -> Box:
        """One box."""
        return Box(start, area)

    def contestant(self, name: str, box: Box, reference: Reference, limit_s: float) -> Contestant:
        """A kernel in its box, to be timed; its calls may take limit_s in all."""
        return Contestant(name, box, reference, limit_s)

    def race(self, shelf: Shelf, racers: list[Contestant], feed: Iterator[Entry], leg: Leg) -> Race:
        """One case."""
        return Race(shelf, racers, feed, self.overhead, leg)

    def evidence(self) -> Json:
        """What is known of the machine's state now."""
        return {"overhead_us": self.overhead.evidence()}

    def lease(self) -> AbstractContextManager[None]:
        """What a judgement holds for itself while it lasts."""
        return nullcontext()

    def release(self) -> None:
        """Give back memory that nothing needs, so that boxes can have it."""

    def hoarded(self, close: Callable[[], None]) -> bool:
        """Whether a box has held so much of the memory that little was left for the judge; `close` ends the box."""
        close()
        return False

    def probe(self) -> None:
        """Raise RuntimeError unless the machine still computes, after a box that ended badly."""
