"""Results of a comparison: samples by case and replicate, and speed-ups of one kernel over another."""

import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import torch

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.reading import MARGIN, Reading
from ksflow.evaluation.judge.samples import Samples
from ksflow.records.base import Json, geomean, mean, relative_weights
from ksflow.records.evidence import BUSY

_KEPT_SAMPLES = 64
_CALM = 0.75  # share of undisturbed calls below which other programs use the machine
_BY_MEAN = "the mean over all calls, which differs from the usual call"
_BY_CPU = "CPU time of all calls, as most of them were preempted"
_LEAST_US = 1e-9


@dataclass
class CaseResult:
    """One case in one replicate: the samples of every kernel that finished it, and the kernels that began it."""

    samples: dict[str, Samples]
    entered: frozenset[str]
    rounds: int
    calls: int
    worst: float  # the first kernel's largest error, as a share of its bound
    contents: list[int]
    whole: int  # how many contents were compared in all elements
    weight: float = 1.0  # of the case, relative to the others
    read: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)  # cached results of `log`

    def pair(self, first: str, other: str, clock: str) -> tuple[list[Any], list[Any]]:
        """Return the samples of two kernels by a clock, of the rounds in which both were timed."""
        own, theirs = (list(getattr(self.samples[name], clock)) for name in (first, other))
        rounds = min(len(own), len(theirs))
        return own[-rounds:], theirs[-rounds:]

    def keep(self, first: str, other: str) -> list[bool]:
        """Return, for each round in which both were timed, whether it disturbed neither."""
        return [a and b for a, b in zip(*self.pair(first, other, "undisturbed"), strict=True)]

    def is_usable(self, first: str, other: str) -> bool:
        """Return whether enough rounds disturbed neither kernel, and each kernel came first in some."""
        return self.rounds > 1 and not statistics.are_too_few(self.keep(first, other))

    def log(self, first: str, other: str, clock: str) -> tuple[float, float]:
        """Return the logarithm of the speed-up of `first` over `other`, by low means, and its variance."""
        if (key := (first, other, clock)) not in self.read:
            own, theirs = self.pair(first, other, clock)
            keep, window = self.keep(first, other), self.samples[first].window
            lows = [statistics.low_mean(statistics.pick(row, keep), window) for row in (theirs, own)]
            seed = zlib.crc32(repr((self.contents, *key)).encode())
            draws = statistics.ratio_logs(theirs, own, keep, torch.Generator().manual_seed(seed), window)
            variance = float(draws.var()) if bool(draws.amin() < draws.amax()) else 0.0
            self.read[key] = math.log(max(lows[0], _LEAST_US) / max(lows[1], _LEAST_US)), variance
        return self.read[key]


@dataclass
class CaseResults:
    """One case in all replicates."""

    case: Json
    results: list[CaseResult] = field(default_factory=list)

    def samples(self, name: str) -> list[Samples]:
        """Return a kernel's samples by replicate: the replicates with enough undisturbed calls, or all if none has."""
        samples = [result.samples[name] for result in self.results if name in result.samples]
        return [each for each in samples if not statistics.are_too_few(each.undisturbed)] or samples

    def doubt(self, name: str) -> str:
        """Return why a kernel's time on this case cannot be ranked, or ""."""
        replicates = self.samples(name)
        us, floor = geomean(each.low_mean() for each in replicates), float(self.case.get("floor", (0.0, ""))[0])
        doubts = [each.doubt for each in replicates]
        if us < floor:
            doubts.append(f"x{us / floor:.2g} of the least possible time, which the judge cannot confirm")
        if any(statistics.are_too_few(each.undisturbed) for each in replicates):
            doubts.append("most of its calls were preempted")
        return next((f"{self.case['name']}: {doubt} {BUSY}" for doubt in doubts if doubt), "")

    def row(self, name: str) -> Json:
        """Return the record of a kernel's time on this case, per call; the interval covers that of every replicate.
        A time below the floor is `impossible` if enough undisturbed batches are below it even with only the fastest
        null batch subtracted. Otherwise the measurement is at fault, and the upper limit is recorded."""
        replicates = self.samples(name)
        samples = [us for each in replicates for us in each.us]
        intervals = [each.low_interval(seed) for seed, each in enumerate(replicates)]
        floor, why = self.case.get("floor", (0.0, "none known"))
        us = geomean(each.low_mean() for each in replicates)
        most = geomean(max(each.low_mean() if each.most_us is None else each.most_us, _LEAST_US) for each in replicates)
        impossible = max(us, most) < floor and all(each.enough for each in replicates)
        us = us if us >= floor else max(most, floor)
        low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
        return {
            "case": self.case["name"],
            "us": round(us, 3),
            "interval_us": [round(min(low, us), 3), round(max(high, us), 3)],
            "at_most_us": round(most, 3),
            "impossible": impossible,
            "median_us": round(statistics.median(samples), 3),
            "wall_us": round(geomean(each.low_mean(each.wall) for each in replicates), 3),
            "cpu_us": round(geomean(each.low_mean(each.cpu) for each in replicates), 3) if replicates[0].cpu else None,
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
    """Results of a comparison of one kernel with others."""

    cases: list[CaseResults]
    rows: list[Json] = field(default_factory=list)  # per case, of the first kernel
    ratios: dict[str, Json] = field(default_factory=dict)  # of the first kernel to each other one
    skipped: dict[str, str] = field(default_factory=dict)
    locked: bool = True
    spread: float = statistics.SPREAD  # prior of the spread between replicates

    def joined(self, outcome: "Outcome", name: str) -> "Outcome":
        """Return this outcome together with another one of the same first kernel, `name`."""
        pairs = zip(self.cases, outcome.cases, strict=True)
        cases = [CaseResults(own.case, own.results + other.results) for own, other in pairs]
        ratios, skipped = self.ratios | outcome.ratios, self.skipped | outcome.skipped
        rows, locked = [results.row(name) for results in cases], self.locked and outcome.locked
        return Outcome(cases, rows, ratios, skipped, locked, self.spread)

    def doubt(self, *names: str) -> str:
        """Return why the times of these kernels cannot be ranked, or ""."""
        return next((doubt for results in self.cases for name in names if (doubt := results.doubt(name))), "")

    def ratio(self, first: str, other: str, control: tuple[str, str] | None = None) -> Json | None:
        """Return the record of `reading`."""
        reading = self.reading(first, other, control)
        return reading.row() if reading else None

    def reading(self, first: str, other: str, control: tuple[str, str] | None = None) -> Reading | None:
        """Return the speed-up of `first` over `other` over all cases and replicates that both began.

        Rounds in which one of the two was preempted are left out, and replicates with too few rounds left. If a
        kernel's times come from its own process, the judge's clock is read too and the lower of the two results counts.
        If most calls were preempted, the CPU time of all calls may show that the first is not ahead. If the mean over
        all calls contradicts the usual calls, the mean counts. control: a kernel and its copy, whose difference widens
        the interval (`RandomEffects.with_control`). Returns None unless both finished every case that both began.
        """
        if (both := self._both(first, other)) is None:
            return None
        usable = [cells for cells in both if all(cell.is_usable(first, other) for cell in cells)]
        samples = [cell.samples[name] for cells in both for cell in cells for name in (first, other)]
        control_effect = self._both(*control) if control else None
        found, means = [], []
        for clock in ("us",) if all(each.notes.get("trusted", True) for each in samples) else ("us", "wall"):
            effect = _effect(usable or both, first, other, clock, self.spread)
            if control and control_effect:
                effect = effect.with_control(_effect(control_effect, *control, clock, self.spread))
            found.append(effect)
            all_calls = "charged_us" if clock == "us" else clock
            means.append(_mean_effect(usable or both, first, other, all_calls, self.spread))
        effect, mean = (min(each, key=lambda effect: effect.low) for each in (found, means))
        by = sorted({str(each.notes["clock"]) for each in samples if "clock" in each.notes})
        enough = len(usable) > 1 or len(usable) == len(both)
        # CPU time excludes waiting, so it cannot show that a kernel is ahead
        if not enough and samples[0].cpu and mean.reach < MARGIN:
            return Reading(mean, mean, [_BY_CPU], usable=True)
        if abs(effect.mean - mean.mean) > effect.half + mean.half:
            effect, by = mean, [*by, _BY_MEAN]
        seen = [cell.samples[name].undisturbed for cells in both for cell in cells for name in (first, other)]
        calm = all(sum(each) >= _CALM * len(each) for each in seen)
        return Reading(effect, mean, by, enough, calm)

    def _both(self, first: str, other: str) -> list[list[CaseResult]] | None:
        """Return the results of the replicates that both kernels began, or None unless both finished each."""
        replicates = [
            [cell for cell in cells if {first, other} <= cell.entered]
            for cells in zip(*(results.results for results in self.cases), strict=True)
        ]
        both = [cells for cells in replicates if cells]
        finished = all({first, other} <= cell.samples.keys() for cells in both for cell in cells)
        return both if both and finished else None


def _effect(
    replicates: list[list[CaseResult]], first: str, other: str, clock: str, spread: float
) -> statistics.RandomEffects:
    """Return the logarithm of the speed-up by a clock, the weighted mean over the cases."""
    logs = [[cell.log(first, other, clock) for cell in cells] for cells in replicates]
    weights = [relative_weights([cell.weight for cell in cells]) for cells in replicates]
    values = [mean([log for log, _ in row], each) for row, each in zip(logs, weights, strict=True)]
    variances = [
        math.fsum(variance * weight**2 for (_, variance), weight in zip(row, each, strict=True)) / len(row) ** 2
        for row, each in zip(logs, weights, strict=True)
    ]
    if len(logs) == 1 and not all(variance for _, variance in logs[0]):
        variances = [statistics.UNKNOWN**2]
    return statistics.random_effects(values, variances, spread)


def _mean_effect(
    replicates: list[list[CaseResult]], first: str, other: str, clock: str, spread: float
) -> statistics.RandomEffects:
    """Return the same as `_effect` by the mean over all calls. Samples of a case have one cap: a kernel pays for its
    own slow calls, and not for a disturbance."""
    logs, variances = [0.0] * len(replicates), [0.0] * len(replicates)
    cases = [[cell.pair(first, other, clock) for cell in cells] for cells in zip(*replicates, strict=True)]
    weights = relative_weights([cell.weight for cell in replicates[0]])
    for pairs, weight in zip(cases, weights, strict=True):
        most = statistics.cap([row for pair in pairs for row in pair])
        for number, (own, theirs) in enumerate(pairs):
            log, variance = statistics.mean_log(theirs, own, most)
            logs[number] += weight * log / len(cases)
            variances[number] += weight**2 * variance / len(cases) ** 2
    return statistics.random_effects(logs, variances, spread)
