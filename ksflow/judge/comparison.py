"""Kernels against each other over every timed case, in replicates: fresh processes, warm-up, one process each, timing.

Where memory lies moves a time by several per cent, and a process keeps its place for life. So in every replicate each
kernel runs in a new process, and they change places: each has been where each other was.
"""

import contextlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from ksflow.judge import statistics
from ksflow.judge.buffers import Buffers
from ksflow.judge.check import Rejected
from ksflow.judge.failure import Failure
from ksflow.judge.input_pool import InputPool
from ksflow.judge.samples import Samples
from ksflow.judge.sandboxed import Sandbox
from ksflow.judge.timing import Backend, CaseBenchmark, Replicate, TimedKernel

Json = dict[str, Any]

_KEPT_SAMPLES = 64
_MOST_REPLICATES = 3
_BEHIND = 0.8
"""A kernel that is surely slower than this needs no second replicate."""
_SLOW_REPLICATE_S = 3.0
"""Nor one that takes so long to start and to run that placement is the smallest of its troubles."""


@dataclass
class CaseResult:
    """One case in one replicate: the samples of every kernel that finished it, and which ones began it."""

    samples: dict[str, Samples]
    entered: frozenset[str]
    rounds: int
    calls: int
    worst: float
    """The first kernel's largest error, as a share of its bound."""
    contents: list[int]
    whole: int
    """How many of the contents were compared whole."""

    @classmethod
    def of(cls, done: CaseBenchmark) -> "CaseResult":
        """What a finished benchmark leaves."""
        samples = {kernel.name: kernel.samples for kernel in done.kernels}
        entered = frozenset({*samples, *done.dropped})
        worst = done.kernels[0].caller.worst
        return cls(samples, entered, done.rounds, done.calls, worst, done.contents, done.whole)


@dataclass
class CaseResults:
    """One case in all replicates."""

    case: Json
    results: list[CaseResult] = field(default_factory=list)

    def doubt(self, name: str) -> str:
        """Why a kernel's time on this case ranks nothing; empty where it does."""
        found = [result.samples[name] for result in self.results if name in result.samples]
        us, floor = _mean([each.low() for each in found]), float(self.case.get("floor", (0.0, ""))[0])
        below = f"x{us / floor:.2g} of what it takes at least, which the judge cannot be sure of" if us < floor else ""
        doubts = [*(each.doubt for each in found), below]
        return next((f"{self.case['name']}: {doubt} (is the machine busy?)" for doubt in doubts if doubt), "")

    def row(self, name: str) -> Json:
        """What is known of a kernel's time on this case, per call.

        A time below the floor is `impossible` if enough undisturbed batches say so with no more than the fastest null
        batch taken off. Otherwise the judge is wrong, and says what it can be sure of.
        """
        found = [result.samples[name] for result in self.results if name in result.samples]
        samples = [us for each in found for us in each.us]
        intervals = [_interval(each, seed) for seed, each in enumerate(found)]
        floor, why = self.case.get("floor", (0.0, "none known"))
        us = _mean([each.low() for each in found])
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
            "floor_us": round(float(floor), 3),
            "floor": str(why),
            "samples_us": [round(us, 3) for us in samples[:_KEPT_SAMPLES]],
            "disturbed": sum(not undisturbed for each in found for undisturbed in each.undisturbed),
            "legs": len(found),
            "rounds": sum(result.rounds for result in self.results),
            "calls": self.results[0].calls,
            "worst": round(max(result.worst for result in self.results), 4),
            "contents": [seed for result in self.results for seed in result.contents],
            "compared_whole": sum(result.whole for result in self.results),
            **found[-1].notes,
        }


@dataclass
class Outcome:
    """What came of a comparison."""

    cases: list[CaseResults]
    rows: list[Json] = field(default_factory=list)
    """Per case, of the first kernel."""
    ratios: dict[str, Json] = field(default_factory=dict)
    """Of the first kernel to each other one."""
    skipped: dict[str, str] = field(default_factory=dict)
    locked: bool = True

    def with_more(self, more: "Outcome", name: str) -> "Outcome":
        """This and another comparison of the same kernels, their replicates together."""
        both = self._joined(more, name)
        found = {other: both.ratio(name, other) for other in self.ratios.keys() & more.ratios.keys()}
        both.ratios = {other: row for other, row in found.items() if row}
        return both

    def beside(self, more: "Outcome", name: str) -> "Outcome":
        """This and a comparison of the same kernel with others."""
        both = self._joined(more, name)
        both.ratios = self.ratios | more.ratios
        both.skipped = self.skipped | more.skipped
        both.locked = self.locked and more.locked
        return both

    def _joined(self, more: "Outcome", name: str) -> "Outcome":
        pairs = zip(self.cases, more.cases, strict=True)
        cases = [CaseResults(own.case, own.results + other.results) for own, other in pairs]
        return Outcome(cases, [results.row(name) for results in cases])

    def doubt(self, *names: str) -> str:
        """Why the times of some kernels rank nothing; empty where they do."""
        return next((doubt for results in self.cases for name in names if (doubt := results.doubt(name))), "")

    def ratio(self, first: str, other: str) -> Json | None:
        """How many times faster `first` is, with the 95 % interval, over all cases and the replicates in which both
        began; None unless both finished each of them.

        Above 1 it is faster. `clocks` says by which clocks the two were timed. Rounds in which one of the two was
        preempted do not count. Where the times of one come from its own process, the judge's clock is asked too, and
        the less certain of the two answers counts.
        """
        both = [result for results in self.cases for result in results.results if {first, other} <= result.entered]
        if not both or any(not {first, other} <= result.samples.keys() for result in both):
            return None
        pairs = [(result.samples[first], result.samples[other]) for result in both]
        found = [_compared(pairs, "us")]
        if any(not each.notes.get("trusted", True) for pair in pairs for each in pair):
            found.append(_compared(pairs, "wall"))
        clocks = {str(each.notes["clock"]) for pair in pairs for each in pair if "clock" in each.notes}
        return {**min(found, key=lambda row: row["low"]), "clocks": sorted(clocks)}


class PairedComparison:
    """The first kernel's failures are raised; the others are skipped where they fail. `at` is told of every case."""

    def __init__(self, pool: InputPool, backend: Backend, kernels: dict[str, Json], at: Callable[[str], None]) -> None:
        self.pool = pool
        self.backend = backend
        self.kernels = kernels
        self.at = at
        self.first = next(iter(kernels))
        self.replicates = min(len(kernels), _MOST_REPLICATES)
        self.outcome = Outcome([CaseResults(case.case) for case in pool.benchmarks])
        self._limits: Json = pool.problem["limits"]

    def run(
        self,
        own: Callable[[Buffers], AbstractContextManager[Sandbox]],
        opener: Callable[[Json, Buffers], Sandbox],
    ) -> Outcome:
        """Time every case in every replicate. Raises Rejected, Failure of the first kernel.

        own: opens the first kernel's sandbox; opener: another one's.
        """
        if self.pool.large:
            self.backend.release()
        buffers = self.pool.buffers(len(self.kernels))
        for replicate in range(self.replicates):
            started = time.monotonic()
            with contextlib.ExitStack() as stack:
                others = {
                    name: stack.enter_context(opener(self.kernels[name], buffers[(place + replicate) % len(buffers)]))
                    for place, name in enumerate(self.kernels)
                    if place and name not in self.outcome.skipped
                }  # they start while the first one does
                sandboxes = {self.first: stack.enter_context(own(buffers[replicate % len(buffers)]))}
                for name, sandbox in others.items():
                    try:
                        sandbox.ready(self._limits["check_s"])
                        sandboxes[name] = sandbox
                    except Failure as failure:
                        sandbox.close()
                        self.outcome.skipped[name] = failure.text
                self._run_replicate(sandboxes, Replicate(replicate, self.replicates))
            found = {name: self.outcome.ratio(self.first, name) for name in list(self.kernels)[1:]}
            self.outcome.ratios = {name: row for name, row in found.items() if row and name not in self.outcome.skipped}
            if self._settled(time.monotonic() - started):
                break
        self._conclude()
        return self.outcome

    def _run_replicate(self, sandboxes: dict[str, Sandbox], replicate: Replicate) -> None:
        limit_s, reference = self._limits["time_s"], self.pool.reference
        kernels = [self.backend.timed_kernel(name, sandbox, reference, limit_s) for name, sandbox in sandboxes.items()]
        benchmarks = [self.backend.benchmark(case, kernels, case.feed(), replicate) for case in self.pool.benchmarks]
        for benchmark in benchmarks:
            self.at(benchmark.case.name)
            benchmark.warm_up()
            self.outcome.skipped |= benchmark.dropped
        self._lock(kernels)
        for benchmark, results in zip(benchmarks, self.outcome.cases, strict=True):
            self.at(benchmark.case.name)
            benchmark.run()
            self.outcome.skipped |= benchmark.dropped
            results.results.append(CaseResult.of(benchmark))

    def _lock(self, kernels: list[TimedKernel]) -> None:
        """From now on each sandbox has one process. Raises Failure of the first kernel's."""
        for kernel in list(kernels):
            try:
                self.outcome.locked &= kernel.sandbox.alone()
            except Failure as failure:
                if kernel is kernels[0]:
                    raise
                kernels.remove(kernel)
                kernel.sandbox.close()
                self.outcome.skipped[kernel.name] = failure.text

    def _settled(self, replicate_s: float) -> bool:
        if not self.outcome.ratios or replicate_s > _SLOW_REPLICATE_S:
            return True
        return bool(next(iter(self.outcome.ratios.values()))["high"] < _BEHIND)

    def _conclude(self) -> None:
        """Work out the times. Raises Rejected for one that cannot be."""
        rows = self.outcome.rows = [results.row(self.first) for results in self.outcome.cases]
        for row in rows:
            if row["impossible"]:
                most, least = f"{row['at_most_us']:g} µs at most", f"{row['floor_us']:.3g} µs here: "
                reason = f"{row['case']}: {most}, but it takes at least {least}"
                raise Rejected("reject-impossible", reason + row["floor"], {"timed": rows})


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
    return {"speedup": round(speedup, 4), "low": round(min(low, speedup), 4), "high": round(max(high, speedup), 4)}


def _interval(samples: Samples, seed: int) -> tuple[float, float]:
    picked = statistics.pick(samples.us, samples.undisturbed)
    return statistics.low_interval(picked, torch.Generator().manual_seed(seed), samples.window)


def _low(clock: list[float], samples: Samples) -> float:
    return statistics.low(statistics.pick(clock, samples.undisturbed), samples.window)


def _mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(math.log(max(value, 1e-9)) for value in values) / len(values))
