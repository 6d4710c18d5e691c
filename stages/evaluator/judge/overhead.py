"""What a turn costs when the kernel does nothing: a trusted null kernel in a box of its own, on the same core."""

import time
from dataclasses import dataclass
from itertools import pairwise

from ksflow.stages.evaluator.judge.area import Area, Room
from ksflow.stages.evaluator.judge.box import Box, Start
from ksflow.stages.evaluator.judge.cases import Layout
from ksflow.stages.evaluator.judge.failure import Failure

_TURNS = 21
_FRESH_S = 60.0


@dataclass(frozen=True)
class Null:
    """A null turn, in seconds."""

    wall_p10: float
    """Taken off wall times: what is surely not the kernel's."""
    wall_p50: float
    wall_p90: float
    cpu_p90: float
    """Taken off CPU times, which only ever count against a kernel."""

    def evidence(self) -> dict[str, float]:
        """In µs."""
        names = ("wall_p10", "wall_p50", "wall_p90", "cpu_p90")
        return {f"{name}_us": round(getattr(self, name) * 1e6, 1) for name in names}


class Overhead:
    """Null turns of any number of calls, measured when asked for and again when that was a while ago."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._box: Box | None = None
        self._known: dict[int, tuple[float, Null]] = {}

    def evidence(self) -> dict[str, float]:
        """What a turn of one call costs."""
        return self.of(1).evidence()

    def of(self, calls: int) -> Null:
        """A turn of so many calls."""
        known = self._known.get(calls)
        if known is None or time.monotonic() - known[0] > _FRESH_S:
            known = self._known[calls] = (time.monotonic(), self._tried(calls))
        return known[1]

    def _tried(self, calls: int) -> Null:
        """Nobody's kernel is to blame for a null box that ends; the next turn has a new one. Raises Failure."""
        try:
            return self._measure(calls)
        except Failure as failure:
            if self._box is not None:
                self._box.close()
            self._box = None
            raise Failure("harness", f"the null kernel's box: {failure.text}") from failure

    def _measure(self, calls: int) -> Null:
        box = self._running()
        walls, clocks = [], [box.cpu_s()]
        for _ in range(_TURNS):
            walls.append(box.go(bytes(calls), 10.0))
            time.sleep(0.0002)  # the kernel books CPU time when a process blocks
            clocks.append(box.cpu_s())
        walls.sort()
        spent = sorted(after - before for before, after in pairwise(clocks))
        low, middle, high = (int(share * _TURNS) for share in (0.1, 0.5, 0.9))
        return Null(walls[low], walls[middle], walls[high], spent[high])

    def _running(self) -> Box:
        if self._box is None:
            self._box = Box(self._start, Area(Room(4096, 4096)))
            self._box.ready(10.0)
            self._box.stage("", Layout((), 4096, 4096), [], 1)
        return self._box
