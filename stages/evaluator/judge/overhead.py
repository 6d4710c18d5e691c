"""What a turn costs when the kernel does nothing: a trusted null kernel in a box of its own, on the same core."""

import time

from ksflow.stages.evaluator.judge.box import Box, Room, Start
from ksflow.stages.evaluator.judge.cases import Layout

_TURNS = 21
_FRESH_S = 60.0
_QUANTILE = 0.1


class Overhead:
    """Null turns of any number of calls, measured when asked for and again when that was a while ago."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._box: Box | None = None
        self._known: dict[int, tuple[float, float]] = {}

    def seconds(self, calls: int) -> float:
        """A low percentile of a null turn's wall time: what is surely not the kernel's."""
        known = self._known.get(calls)
        if known is None or time.monotonic() - known[0] > _FRESH_S:
            known = self._known[calls] = (time.monotonic(), self._measure(calls))
        return known[1]

    def _measure(self, calls: int) -> float:
        box = self._running()
        walls = sorted(box.go(bytes(calls), 10.0) for _ in range(_TURNS))
        return walls[int(_QUANTILE * _TURNS)]

    def _running(self) -> Box:
        if self._box is None:
            self._box = Box(self._start, Room(4096, 4096))
            self._box.ready(10.0)
            self._box.stage(Layout((), 4096, 4096), [], 1)
        return self._box
