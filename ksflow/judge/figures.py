"""From the samples of all replicates to figures: one kernel's time on a case, and how two kernels compare over all
cases."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from ksflow.judge import statistics
from ksflow.judge.samples import Samples
from ksflow.judge.timing import CaseBenchmark

Json = dict[str, Any]

_KEPT = 64


@dataclass
class CaseResult:
    """One case in one replicate: the samples of every kernel that finished it, and which ones began it."""

    samples: dict[str, Samples]
    entered: frozenset[str]
    rounds: int
    calls: int
    worst: float
    contents: list[int]
    whole: int

    @classmethod
    def of(cls, benchmark: CaseBenchmark) -> "CaseResult":
        """What a finished benchmark leaves."""
        samples = {kernel.name: kernel.samples for kernel in benchmark.kernels}
        entered = frozenset({*samples, *benchmark.dropped})
        worst = benchmark.kernels[0].caller.worst
        return cls(samples, entered, benchmark.rounds, benchmark.calls, worst, benchmark.contents, benchmark.whole)


@dataclass
class CaseResults:
    """One case in all replicates."""

    case: Json
    results: list[CaseResult] = field(default_factory=list)

    def doubt(self, name: str) -> str:
        """Why a kernel's time on this case ranks nothing; empty where it does."""
        found = [result.samples[name] for result in self.results if name in result.samples]
        us, floor = _mean([each.low() for each in found]), self._floor[0]
        below = f"x{us / floor:.2g} of what it takes at least, which the judge cannot be sure of" if us < floor else ""
        doubts = [*(each.doubt for each in found), below]
        return next((f"{self.case['name']}: {doubt} (is the machine busy?)" for doubt in doubts if doubt), "")

    @property
    def _floor(self) -> tuple[float, str]:
        floor, why = self.case.get("floor", (0.0, "none known"))
        return float(floor), str(why)

    def row(self, name: str) -> Json:
        """What is known of a kernel's time on this case, per call.

        A time below the floor is `impossible` if enough undisturbed turns say so with no more than the fastest null
        turn taken off. Otherwise the judge is wrong, and says what it can be sure of.
        """
        found = [result.samples[name] for result in self.results if name in result.samples]
        samples = [us for each in found for us in each.us]
        intervals = [_interval(each, seed) for seed, each in enumerate(found)]
        (floor, why), us = self._floor, _mean([each.low() for each in found])
        most = _mean([each.low() if each.most_us is None else each.most_us for each in found])
        impossible = max(us, most) < floor and all(each.enough for each in found)
        us = us if us >= floor else max(most, floor)
        low, high = (_mean([interval[end] for interval in intervals]) for end in (0, 1))
        return {
            "case": self.case["name"],
            "us": round(us, 3),
            "interval_us": [round(min(low, us), 3), round(max(high, us), 3)],
            "at_most_us": round(most, 3),
            "impossible": impossible,
            "median_us": round(statistics.middle(samples), 3),
            "wall_us": round(_mean([_low(each.wall, each) for each in found]), 3),
            "cpu_us": round(_mean([_low(each.cpu, each) for each in found]), 3) if found[0].cpu else None,
            "floor_us": round(floor, 3),
            "floor": why,
            "samples_us": [round(us, 3) for us in samples[:_KEPT]],
            "disturbed": sum(not undisturbed for each in found for undisturbed in each.undisturbed),
            "legs": len(found),
            "rounds": sum(result.rounds for result in self.results),
            "calls": self.results[0].calls,
            "worst": round(max(result.worst for result in self.results), 4),
            "contents": [number for result in self.results for number in result.contents],
            "compared_whole": sum(result.whole for result in self.results),
            **found[-1].notes,
        }


def ratio(cases: list[CaseResults], first: str, other: str) -> Json | None:
    """How many times faster `first` is, with the 95 % interval, over all cases and the replicates in which both began;
    None unless both finished each of them.

    Above 1 it is faster. `clocks` says by which clocks the two were timed. Rounds in which one of the two was preempted
    do not count. Where the times of one come from its own process, the judge's clock is asked too, and the less certain
    of the two answers counts.
    """
    both = [result for results in cases for result in results.results if {first, other} <= result.entered]
    if not both or any(not {first, other} <= result.samples.keys() for result in both):
        return None
    pairs = [(result.samples[first], result.samples[other]) for result in both]
    found = [_compared(pairs, "us")]
    if any(not each.notes.get("trusted", True) for pair in pairs for each in pair):
        found.append(_compared(pairs, "wall"))
    clocks = {str(each.notes["clock"]) for pair in pairs for each in pair if "clock" in each.notes}
    return {**min(found, key=lambda row: row["low"]), "clocks": sorted(clocks)}


def _compared(pairs: list[tuple[Samples, Samples]], clock: str) -> Json:
    """How many times faster the first of each pair is, by one of their clocks."""
    logs, speedups = [], []
    for seed, (own, theirs) in enumerate(pairs):
        mine, others = (list(getattr(samples, clock)) for samples in (own, theirs))
        rounds = min(len(mine), len(others))
        keep = [a and b for a, b in zip(own.undisturbed[-rounds:], theirs.undisturbed[-rounds:], strict=True)]
        rows = [row[-rounds:] for row in (others, mine)]
        lows = [statistics.low(statistics.pick(row, keep), own.window) for row in rows]
        speedups.append(lows[0] / lows[1])
        logs.append(statistics.ratio_logs(rows[0], rows[1], keep, torch.Generator().manual_seed(seed), own.window))
    speedup = _mean(speedups)
    low, high = statistics.interval(logs)
    return {
        "speedup": round(speedup, 4),
        "low": round(min(low, speedup), 4),
        "high": round(max(high, speedup), 4),
    }


def _interval(samples: Samples, seed: int) -> tuple[float, float]:
    picked = statistics.pick(samples.us, samples.undisturbed)
    return statistics.low_interval(picked, torch.Generator().manual_seed(seed), samples.window)


def _low(clock: list[float], samples: Samples) -> float:
    return statistics.low(statistics.pick(clock, samples.undisturbed), samples.window)


def _mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(math.log(max(value, 1e-9)) for value in values) / len(values))
