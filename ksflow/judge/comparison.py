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
from ksflow.records import significant

Json = dict[str, Any]

_KEPT_SAMPLES = 64
_FEWEST, _FEWEST_TOGETHER = 2, 1
"""Replicates beside other kernels: a single one tells nothing of what lies between them. The second figure is for where
starting a kernel costs seconds."""
_LOOKS = frozenset((1, 2, 3, 4, 6, 9, 13, 18, 24))
"""After so many replicates it is asked whether to stop: whoever asks after each finds by chance what is not there."""
_FEWEST_TO_RANK, _PATIENT = 4, 3
"""Two readings that differ leave room for anything. Until there are so many replicates, kernels that cannot be ranked
may take so many times the time."""
_PLACES = 3
"""In so many each of three kernels has been where each other was."""
BUSY = "(is the machine busy?)"
LEAD = 1.005
"""Who seems to be ahead by this, but not surely, is timed in more replicates."""
_FAR_BEHIND = 0.8
"""Who is slower than this for sure in one replicate is so in all: where memory lies moves a time by less."""
_WIDE = 1.1
"""An interval that holds 1 and is wider than this neither tells two kernels apart nor calls them alike."""
_DISAGREE = 0.01
"""Readings are said to disagree where chance would set them so far apart less often than this."""


@dataclass(frozen=True)
class Effort:
    """How many replicates there may be, and how long they may take, while it is unclear how the first kernel does
    beside the first `watched` others. The `fewest` may take three times as long."""

    most: int = 9
    spent_s: float = 20.0
    watched: int = 1
    fewest: int = 1


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

    def samples(self, name: str) -> list[Samples]:
        """A kernel's, by replicate: those that are readings, or all of them where none is."""
        samples = [result.samples[name] for result in self.results if name in result.samples]
        return [each for each in samples if not statistics.few(each.undisturbed)] or samples

    def doubt(self, name: str) -> str:
        """Why a kernel's time on this case ranks nothing; empty where it does."""
        replicates = self.samples(name)
        us, floor = _mean([each.low() for each in replicates]), float(self.case.get("floor", (0.0, ""))[0])
        below = f"x{us / floor:.2g} of what it takes at least, which the judge cannot be sure of" if us < floor else ""
        preempted = (
            "most of its calls were preempted" if any(statistics.few(each.undisturbed) for each in replicates) else ""
        )
        doubts = [*(each.doubt for each in replicates), below, preempted]
        return next((f"{self.case['name']}: {doubt} {BUSY}" for doubt in doubts if doubt), "")

    def row(self, name: str) -> Json:
        """What is known of a kernel's time on this case, per call. Its interval holds that of every replicate.

        A time below the floor is `impossible` if enough undisturbed batches say so with no more than the fastest null
        batch taken off. Otherwise the judge is wrong, and says what it can be sure of.
        """
        replicates = self.samples(name)
        samples = [us for each in replicates for us in each.us]
        intervals = [_interval(each, seed) for seed, each in enumerate(replicates)]
        floor, why = self.case.get("floor", (0.0, "none known"))
        us = _mean([each.low() for each in replicates])
        most = _mean([each.low() if each.most_us is None else each.most_us for each in replicates])
        impossible = max(us, most) < floor and all(each.enough for each in replicates)
        us = us if us >= floor else max(most, floor)
        low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
        return {
            "case": self.case["name"],
            "us": round(us, 3),
            "interval_us": [round(min(low, us), 3), round(max(high, us), 3)],
            "at_most_us": round(most, 3),
            "impossible": impossible,
            "median_us": round(statistics.middle(samples), 3),
            "wall_us": round(_mean([_low(each.wall, each) for each in replicates]), 3),
            "cpu_us": round(_mean([_low(each.cpu, each) for each in replicates]), 3) if replicates[0].cpu else None,
            "floor_us": round(float(floor), 3),
            "floor": str(why),
            "samples_us": [round(us, 3) for us in samples[:_KEPT_SAMPLES]],
            "disturbed": sum(not undisturbed for each in replicates for undisturbed in each.undisturbed),
            "legs": len(replicates),
            "rounds": sum(result.rounds for result in self.results),
            "calls": self.results[0].calls,
            "worst": round(max(result.worst for result in self.results), 4),
            "contents": [seed for result in self.results for seed in result.contents],
            "compared_whole": sum(result.whole for result in self.results),
            **replicates[-1].notes,
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

    def pooled(self, outcome: "Outcome", name: str) -> "Outcome":
        """This and another comparison of the same kernels, their replicates together."""
        both = self._joined(outcome, name)
        ratios = {other: both.ratio(name, other) for other in self.ratios.keys() & outcome.ratios.keys()}
        both.ratios = {other: row for other, row in ratios.items() if row}
        return both

    def beside(self, outcome: "Outcome", name: str) -> "Outcome":
        """This and a comparison of the same kernel with others."""
        both = self._joined(outcome, name)
        both.ratios = self.ratios | outcome.ratios
        both.skipped = self.skipped | outcome.skipped
        both.locked = self.locked and outcome.locked
        return both

    def _joined(self, outcome: "Outcome", name: str) -> "Outcome":
        pairs = zip(self.cases, outcome.cases, strict=True)
        cases = [CaseResults(own.case, own.results + other.results) for own, other in pairs]
        return Outcome(cases, [results.row(name) for results in cases])

    def doubt(self, *names: str) -> str:
        """Why the times of some kernels rank nothing; empty where they do."""
        return next((doubt for results in self.cases for name in names if (doubt := results.doubt(name))), "")

    def ratio(self, first: str, other: str) -> Json | None:
        """How many times faster `first` is, with the 95 % interval, over all cases and the replicates in which both
        began; None unless both finished each of them.

        Above 1 it is faster. `clocks` says by which clocks the two were timed. Rounds in which one of the two was
        preempted do not count, nor a replicate of which too few are left. Where the times of one come from its own
        process, the judge's clock is asked too, and the less certain of the two answers counts.
        """
        replicates = [
            [cell for cell in cells if {first, other} <= cell.entered]
            for cells in zip(*(results.results for results in self.cases), strict=True)
        ]
        both = [cells for cells in replicates if cells]
        if not both or any(not {first, other} <= cell.samples.keys() for cells in both for cell in cells):
            return None
        pairs = [[(cell.samples[first], cell.samples[other]) for cell in cells] for cells in both]
        readings = [each for each in pairs if not any(statistics.few(_keep(*pair)) for pair in each)]
        samples = [each for cells in pairs for pair in cells for each in pair]
        rows = [_compared(readings or pairs, "us")]
        if any(not each.notes.get("trusted", True) for each in samples):
            rows.append(_compared(readings or pairs, "wall"))
        row = min(rows, key=lambda row: float(row["low"]))
        clocks = sorted({str(each.notes["clock"]) for each in samples if "clock" in each.notes})
        return {**row, "clocks": clocks, **_rank(row, bool(readings))}


class PairedComparison:
    """The first kernel's failures are raised; the others are skipped where they fail. `at` is told of every case."""

    def __init__(
        self,
        pool: InputPool,
        backend: Backend,
        kernels: dict[str, Json],
        at: Callable[[str], None],
        effort: Effort = Effort(),
    ) -> None:
        self.pool = pool
        self.backend = backend
        self.kernels = kernels
        self.at = at
        self.effort = effort
        self.first = next(iter(kernels))
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
        started = time.monotonic()
        for number in range(self.effort.most):
            with contextlib.ExitStack() as stack:
                replicate = Replicate(number, min(len(self.kernels), _PLACES))
                self._run_replicate(stack, own, opener, replicate)
            gains = {name: self.outcome.ratio(self.first, name) for name in list(self.kernels)[1:]}
            self.outcome.ratios = {name: row for name, row in gains.items() if row and name not in self.outcome.skipped}
            if self._settled(number + 1, time.monotonic() - started):
                break
        rows = self.outcome.rows = [results.row(self.first) for results in self.outcome.cases]
        for row in rows:
            if row["impossible"]:
                most, least = f"{row['at_most_us']:g} µs at most", f"{row['floor_us']:.3g} µs here: "
                reason = f"{row['case']}: {most}, but it takes at least {least}"
                raise Rejected("reject-impossible", reason + row["floor"], {"timed": rows})
        return self.outcome

    def _run_replicate(
        self,
        stack: contextlib.ExitStack,
        own: Callable[[Buffers], AbstractContextManager[Sandbox]],
        opener: Callable[[Json, Buffers], Sandbox],
        replicate: Replicate,
    ) -> None:
        """The others start, warm up and are frozen before the first one is there to disturb them. Where a start takes
        seconds, on a device, all start together."""
        buffers = self.pool.buffers(len(self.kernels))
        kernels: list[TimedKernel] = []
        benchmarks = [self.backend.benchmark(case, kernels, case.feed(), replicate) for case in self.pool.benchmarks]

        def opened(place: int, name: str) -> Sandbox:
            lies = buffers[(place + replicate.number) % len(buffers)]
            return stack.enter_context(opener(self.kernels[name], lies) if place else own(lies))

        names = {place: name for place, name in enumerate(self.kernels) if name not in self.outcome.skipped}
        places = [place for place in names if place] + [0]
        if self.backend.starts_together:
            sandboxes = {place: opened(place, names[place]) for place in places}
            ready = [self._ready(place, names[place], sandboxes[place]) for place in places]
            self._admit([kernel for kernel in ready if kernel], kernels, benchmarks)
        else:
            for place in places:
                kernel = self._ready(place, names[place], opened(place, names[place]))
                self._admit([kernel] if kernel else [], kernels, benchmarks)
        for benchmark, results in zip(benchmarks, self.outcome.cases, strict=True):
            self.at(benchmark.case.name)
            benchmark.run()
            self.outcome.skipped |= benchmark.dropped
            results.results.append(CaseResult.of(benchmark))

    def _ready(self, place: int, name: str, sandbox: Sandbox) -> TimedKernel | None:
        """A kernel whose sandbox has loaded it. The first one's was waited for by who opened it."""
        try:
            if place:
                sandbox.ready(self._limits["check_s"])
        except Failure as failure:
            sandbox.close()
            self.outcome.skipped[name] = failure.text
            return None
        kernel = self.backend.timed_kernel(name, sandbox, self.pool.reference, self._limits["time_s"])
        kernel.required = not place
        return kernel

    def _admit(self, new: list[TimedKernel], kernels: list[TimedKernel], benchmarks: list[CaseBenchmark]) -> None:
        """Kernels join those to be timed: warmed up, from now on each sandbox has one process, and it is frozen where
        not all start together. Raises what the first kernel raises."""
        for benchmark in benchmarks:
            self.at(benchmark.case.name)
            benchmark.warm_up(new)
            self.outcome.skipped |= benchmark.dropped
        for kernel in new:
            try:
                self.outcome.locked &= kernel.sandbox.alone()
                if not self.backend.starts_together:
                    kernel.sandbox.freeze()
            except Failure as failure:
                if kernel.required:
                    raise
                kernel.sandbox.close()
                self.outcome.skipped[kernel.name] = failure.text
                continue
            kernels.insert(0 if kernel.required else len(kernels), kernel)

    def _settled(self, done: int, spent_s: float) -> bool:
        watched = list(self.kernels)[1 : 1 + self.effort.watched]
        rows = [self.outcome.ratios[name] for name in watched if name in self.outcome.ratios]
        if not rows:
            return True
        if done < (_FEWEST_TOGETHER if self.backend.starts_together else _FEWEST):
            return all(row["ranked"] and row["high"] < _FAR_BEHIND for row in rows)
        if done in _LOOKS and all(map(_clear, rows)):
            return True
        few = done < self.effort.fewest or (done < _FEWEST_TO_RANK and not all(row["ranked"] for row in rows))
        return spent_s * (done + 1) / done > self.effort.spent_s * (_PATIENT if few else 1)


def _compared(replicates: list[list[tuple[Samples, Samples]]], clock: str) -> Json:
    """How many times faster the first of each pair is, by one of their clocks: pairs by replicate and case."""
    values, variances = [], []
    for number, pairs in enumerate(replicates):
        speedups, logs = zip(*(_pair(pair, clock, number + place) for place, pair in enumerate(pairs)), strict=True)
        draws = torch.stack(logs)
        single = len(replicates) == 1 and bool((draws.amin(dim=1) == draws.amax(dim=1)).any())
        values.append(math.log(_mean(list(speedups))))
        variances.append(statistics.UNKNOWN**2 if single else float(draws.mean(dim=0).var()))
    effect = statistics.random_effects(values, variances)
    return {
        "speedup": significant(math.exp(effect.mean)),
        "low": significant(math.exp(effect.mean - effect.half)),
        "high": significant(math.exp(effect.mean + effect.half)),
        "replicates": [significant(math.exp(value)) for value in values],
        "tau": round(effect.tau, 5),
        "heterogeneity_p": round(effect.p, 6),
    }


def _pair(pair: tuple[Samples, Samples], clock: str, seed: int) -> tuple[float, torch.Tensor]:
    """How many times faster the first one is on one case in one replicate, and draws of its logarithm."""
    own, theirs = pair
    keep = _keep(own, theirs)
    mine, others = (list(getattr(samples, clock))[-len(keep) :] for samples in pair)
    lows = [statistics.low(statistics.pick(row, keep), own.window) for row in (others, mine)]
    generator = torch.Generator().manual_seed(seed)
    return lows[0] / lows[1], statistics.ratio_logs(others, mine, keep, generator, own.window)


def _keep(own: Samples, theirs: Samples) -> list[bool]:
    """The rounds that both were timed in: which of them disturbed neither."""
    rounds = min(len(own.us), len(theirs.us))
    return [a and b for a, b in zip(own.undisturbed[-rounds:], theirs.undisturbed[-rounds:], strict=True)]


def _rank(row: Json, readings: bool) -> Json:
    """Whether two kernels can be ranked by a ratio, or why not."""
    why = ""
    if not readings:
        why = "most of their calls were preempted"
    elif row["low"] <= 1 <= row["high"] and row["high"] > _WIDE * row["low"]:
        seen = ", ".join(f"x{value:.3g}" for value in row["replicates"])
        disagree = row["heterogeneity_p"] < _DISAGREE
        why = f"replicates disagree: {seen}" if disagree else f"{seen} leave x{row['low']:.3g} to x{row['high']:.3g}"
    return {"ranked": not why, "why": why and f"{why} {BUSY}"}


def _clear(row: Json) -> bool:
    """Whether more replicates would tell nothing that counts: one is faster for sure, or there is no lead to make
    sure of."""
    return bool(row["ranked"] and (row["low"] > 1 or row["high"] < 1 or row["speedup"] < LEAD))


def _interval(samples: Samples, seed: int) -> tuple[float, float]:
    picked = statistics.pick(samples.us, samples.undisturbed)
    return statistics.low_interval(picked, torch.Generator().manual_seed(seed), samples.window)


def _low(clock: list[float], samples: Samples) -> float:
    return statistics.low(statistics.pick(clock, samples.undisturbed), samples.window)


def _mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(math.log(max(value, 1e-9)) for value in values) / len(values))
