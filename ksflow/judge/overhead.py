"""What a turn costs when the kernel does nothing: a trusted null kernel in a box of its own, on the same core.

It takes a turn in every round of a race, on the same contents and in the same form as the kernels' turns (inputs
written while its box is frozen, told, thawed, frozen again), so what is taken off a kernel's times was measured among
them, and moves with the machine as they do. What comes off a time is the same statistic of the null turns as the one
that is ranked, at the lower end of its own interval: an unlucky null makes no kernel faster than it is.
"""

import operator
from dataclasses import dataclass, field

import torch

from ksflow.judge import statistics
from ksflow.judge.buffers import Area, Room
from ksflow.judge.cases import Entry
from ksflow.judge.failure import Failure
from ksflow.judge.input_pool import Shelf
from ksflow.judge.sandboxed import Box, Start

_FIRST = 9
"""Null turns before a race, which give a first estimate, and count where the race has hardly more rounds."""
_FEWEST = 3
_NEAR = 1.1
_BUSY = 1.4
"""So many times the fastest null turn is the most that is taken off."""
_MOST_BYTES = 1 << 20
"""Of the contents' beginning, which the judge writes for a null turn too: with those of all others it fills caches."""
_PATIENCE_S = 10.0


@dataclass
class Null:
    """The null turns of one race, in seconds; what to take off a turn's two clocks."""

    frozen: str = ""
    """How boxes are stopped between turns."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    """Taken off wall times: surely not the kernel's."""
    cpu_s: float = 0.0
    """Taken off CPU times, likewise."""
    stopping_s: float = 0.0
    """The CPU time that a turn has beyond its wall time: what stopping the box costs it."""
    calm: int = 0
    """How many turns were not preempted."""

    def add(self, wall_s: float, cpu_s: float) -> None:
        """One more turn."""
        self.wall.append(wall_s)
        self.cpu.append(cpu_s)

    def settle(self) -> None:
        """Work out what to take off from the turns so far; those before the race only while there are few others.

        A preempted turn says nothing of what the kernels' turns had to bear: it does not count. Nor does anything far
        above the fastest turn: a busy machine delays some turns by as much as a short kernel takes.
        """
        first = _FIRST if len(self.wall) >= 2 * _FIRST else 0
        wall, cpu = self.wall[first:], self.cpu[first:]
        calm = [statistics.calm(*pair) for pair in zip(_us(wall), _us(cpu), strict=True)]
        most_wall_s, most_cpu_s = (_BUSY * least_s for least_s in self.least_s)
        self.cpu_s = min(_surely(cpu), most_cpu_s)
        few = sum(calm) < _FEWEST
        self.wall_s = min(most_wall_s, *([self.cpu_s, *wall] if few else [_surely(statistics.pick(wall, calm))]))
        beyond = [spent - passed for passed, spent in zip(self.wall, self.cpu, strict=True)]
        calm = [statistics.calm(*pair) for pair in zip(_us(self.wall), _us(self.cpu), strict=True)]
        self.stopping_s = max(statistics.middle(statistics.pick(beyond, calm)), 0.0)
        self.calm = sum(calm)

    @property
    def least_s(self) -> tuple[float, float]:
        """The least that a turn took, by each clock: more than this may have been taken off a kernel's time."""
        return min(self.wall), min(self.cpu)

    def evidence(self) -> dict[str, float]:
        """In µs."""
        parts = {"wall_p10": 0.1, "wall_p50": 0.5, "wall_p90": 0.9}
        row = {f"{name}_us": round(statistics.quantile(self.wall, share) * 1e6, 1) for name, share in parts.items()}
        off = {"off_wall_us": round(self.wall_s * 1e6, 2), "off_cpu_us": round(self.cpu_s * 1e6, 2)}
        return {**row, **off}


class Overhead:
    """The null kernel's box. Raises Failure of kind harness: nobody's kernel is to blame for it."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._box: Box | None = None
        self._clock_s = 0.0
        self._latest = Null()
        self._sizes: tuple[int, ...] = (0, 0)
        self._room: tuple[int, ...] = (4096, 4096)

    def evidence(self) -> dict[str, float]:
        """What a turn cost in the latest race; nothing before the first one."""
        return self._latest.evidence() if self._latest.wall else {}

    @property
    def usual_s(self) -> float:
        """What a turn takes in the present race: enough to tell short kernels from others."""
        return statistics.middle(self._latest.wall) if self._latest.wall else 0.0

    def begin(self, shelf: Shelf) -> Null:
        """Turn to a case: null turns without contents, for a first estimate."""
        try:
            box = self._running(shelf)
            box.thaw()
            box.stage("", shelf.layout, shelf.dims, 1)
            null = self._latest = Null(frozen=box.freeze())
            self._clock_s = box.cpu_s()
            for _ in range(_FIRST):
                self._take_turn(null)
        except Failure as failure:
            raise self._failed(failure) from failure
        null.settle()
        return null

    def turn(self, null: Null, entry: Entry) -> None:
        """One null turn among the kernels' turns."""
        assert self._box is not None
        inputs, outputs = self._sizes
        self._box.outputs[:outputs].fill_(0)
        self._box.inputs[:inputs].copy_(entry.packed[:inputs])
        try:
            self._take_turn(null)
        except Failure as failure:
            raise self._failed(failure) from failure
        self._box.outputs[:outputs].clone()

    # -- inside ----------------------------------------------------------------------------------

    def _take_turn(self, null: Null) -> None:
        assert self._box is not None
        wall_s = self._box.go(bytes(1), _PATIENCE_S)
        self._box.freeze()
        clock_s = self._box.cpu_s()
        null.add(wall_s, clock_s - self._clock_s)
        self._clock_s = clock_s

    def _failed(self, failure: Failure) -> Failure:
        """The next race has a new box."""
        if self._box is not None:
            self._box.close()
        self._box = None
        return Failure("harness", f"the null kernel's box: {failure.text}")

    def _running(self, shelf: Shelf) -> Box:
        """A box with room for the beginning of a case's contents."""
        layout = shelf.layout
        self._sizes = min(layout.input_bytes, _MOST_BYTES), min(layout.output_bytes, _MOST_BYTES)
        if self._box is not None and any(map(operator.gt, self._sizes, self._room)):
            self._box.close()
            self._box = None
        if self._box is None:
            self._room = tuple(map(max, self._sizes, self._room))
            self._box = Box(self._start, Area(Room(*self._room)))
            self._box.ready(_PATIENCE_S)
            self._box.alone()
        return self._box


def _us(seconds: list[float]) -> list[float]:
    return [value * 1e6 for value in seconds]


def _surely(seconds: list[float]) -> float:
    """The low end of the low mean's interval; not far above the fastest tenth, where the machine is busy."""
    low, _ = statistics.low_interval(seconds, torch.Generator().manual_seed(0))
    return min(low, _NEAR * statistics.quantile(seconds, 0.1))
