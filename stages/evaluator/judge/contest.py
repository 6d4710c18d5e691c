"""Kernels against each other over every timed case: boxes, warm-up, one process each, races, ratios."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ksflow.stages.evaluator.judge import statistics
from ksflow.stages.evaluator.judge.box import Box, Failure
from ksflow.stages.evaluator.judge.check import Rejected
from ksflow.stages.evaluator.judge.overhead import Overhead
from ksflow.stages.evaluator.judge.stock import Stock
from ksflow.stages.evaluator.judge.timing import Contestant, Race

Json = dict[str, Any]
Opener = Callable[[Json], Box]


@dataclass
class Ratios:
    """How the first kernel compares with another: a speed-up per case, and resampled logs of each."""

    speedups: list[float] = field(default_factory=list)
    logs: list[torch.Tensor] = field(default_factory=list)

    def row(self) -> Json:
        """The geometric mean over the cases with its 95 % interval; above 1 the first one is faster."""
        speedup = float(torch.tensor(self.speedups, dtype=torch.float64).log().mean().exp())
        low, high = statistics.interval(self.logs)
        return {
            "speedup": round(speedup, 4),
            "low": round(min(low, speedup), 4),
            "high": round(max(high, speedup), 4),
        }


@dataclass
class Outcome:
    """What came of it."""

    rows: list[Json] = field(default_factory=list)
    """Per case, of the first kernel."""
    ratios: dict[str, Json] = field(default_factory=dict)
    pairs: dict[tuple[str, str], Json] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    locked: bool = True


class Contest:
    """The first kernel's failures are raised; the others are skipped where they fail.

    `at` is told of every case before it begins.
    """

    def __init__(self, stock: Stock, overhead: Overhead, kernels: dict[str, Json], at: Callable[[str], None]) -> None:
        self.stock = stock
        self.overhead = overhead
        self.kernels = kernels
        self.at = at
        self.outcome = Outcome()
        self._limits: Json = stock.problem["limits"]

    def run(self, own: Box, open_box: Opener, uses: int) -> Outcome:
        """Race on every case. Raises Rejected, Failure of the first kernel."""
        deadline = time.monotonic() + self._limits["time_s"]
        ratios: dict[tuple[str, str], Ratios] = {}
        with contextlib.ExitStack() as stack:
            boxes = {next(iter(self.kernels)): own, **self._others(stack, open_box)}
            racers = [Contestant(name, box, self.stock.reference, deadline) for name, box in boxes.items()]
            races = [Race(shelf, racers, shelf.feed(uses), self.overhead) for shelf in self.stock.benchmarks]
            for step in (Race.warm_up, None, Race.run):
                if step is None:
                    self._lock(racers)
                    continue
                for race in races:
                    self.at(race.shelf.name)
                    step(race)
                    self.outcome.skipped |= race.dropped
                    if step is Race.run:
                        self._finish(race, ratios)
        self.outcome.pairs = {pair: found.row() for pair, found in ratios.items()}
        first = racers[0].name
        self.outcome.ratios = {b: row for (a, b), row in self.outcome.pairs.items() if a == first}
        return self.outcome

    def _finish(self, race: Race, ratios: dict[tuple[str, str], Ratios]) -> None:
        row = race.row()
        floor, why = race.shelf.case.get("floor", (0.0, "none known"))
        self.outcome.rows.append({**row, "floor_us": round(floor, 3), "floor": why})
        if row["us"] < floor:
            reason = f"{race.shelf.name}: {row['us']:g} µs, but it takes at least {floor:.3g} µs here: {why}"
            raise Rejected("reject-impossible", reason, {"timed": self.outcome.rows})
        names = {contestant.name for contestant in race.racing}
        for pair in [pair for pair in ratios if not names.issuperset(pair)]:
            del ratios[pair]
        for index, first in enumerate(race.racing[:2]):
            for other in race.racing[index + 1 :]:
                _compare(first, other, ratios.setdefault((first.name, other.name), Ratios()))

    def _others(self, stack: contextlib.ExitStack, open_box: Opener) -> dict[str, Box]:
        boxes = {}
        for name in list(self.kernels)[1:]:
            box = stack.enter_context(open_box(self.kernels[name]))
            try:
                box.ready(self._limits["check_s"])
                boxes[name] = box
            except Failure as failure:
                self.outcome.skipped[name] = failure.text
        return boxes

    def _lock(self, racers: list[Contestant]) -> None:
        for contestant in list(racers):
            try:
                self.outcome.locked &= contestant.box.alone()
            except Failure as failure:
                if contestant is racers[0]:
                    raise
                racers.remove(contestant)
                self.outcome.skipped[contestant.name] = failure.text


def _compare(first: Contestant, other: Contestant, found: Ratios) -> None:
    """The rounds in which neither was preempted."""
    rounds = min(len(first.samples.us), len(other.samples.us))
    keep = [a and b for a, b in zip(first.samples.calm[-rounds:], other.samples.calm[-rounds:], strict=True)]
    rows = [contestant.samples.us[-rounds:] for contestant in (other, first)]
    lows = [statistics.low(statistics.pick(row, keep)) for row in rows]
    found.speedups.append(lows[0] / lows[1])
    found.logs.append(statistics.ratio_logs(rows[0], rows[1], keep, torch.Generator().manual_seed(len(found.logs))))
