"""What a case needs at least: its arithmetic and its traffic, from problem.yaml's `work`, and the floor they set.

A time below the floor is impossible on the target, whoever measured it. So every ceiling is optimistic: the highest
rates, data that is already in the cache, arithmetic and traffic that overlap fully. Where something is not known there
is no floor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ksflow.records import Case, Problem, Scalar, Target
from ksflow.source.expressions import calculate, numbers

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")
"""The wider first: who can do with fp8 can do with bf16."""
_KEYS = ("flops", "bytes", "dtype")
_HEADROOM = {"gpu": 1.25}
"""GPUs clock higher than their data sheets count with."""
_CACHE_FACTOR = 10.0
"""How much faster than main memory a cache of unknown bandwidth may be."""


@dataclass(frozen=True)
class Work:
    """What one case needs; None where problem.yaml does not say."""

    flops: float | None
    bytes: float | None

    @property
    def intensity(self) -> float | None:
        """Operations for each byte."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


def evaluate(expression: str, names: Mapping[str, Scalar]) -> float:
    """An arithmetic expression over a case's parameters. ValueError says what is wrong with it."""
    value = calculate(expression.strip(), numbers(names))
    if value < 0:
        raise ValueError(f"{expression!r} is negative: {value:g}")
    return float(value)


def work(problem: Problem, case: Case) -> Work:
    """What a case needs. ValueError where an expression is wrong."""
    said = problem.work
    return Work(*(evaluate(said[key], case.params) if key in said else None for key in ("flops", "bytes")))


def check(spec: Mapping[str, str], cases: tuple[Case, ...]) -> None:
    """Every expression must give a number for every case. ValueError names the key and says what is wrong."""
    if unknown := sorted(spec.keys() - set(_KEYS)):
        raise ValueError(f"work.{unknown[0]}: unknown key; valid: {', '.join(_KEYS)}")
    if (precision := spec.get("dtype", PRECISIONS[0])) not in PRECISIONS:
        raise ValueError(f"work.dtype: {precision!r} is not one of {', '.join(PRECISIONS)}")
    for key in spec.keys() - {"dtype"}:
        for case in cases:
            try:
                evaluate(spec[key], case.params)
            except ValueError as error:
                raise ValueError(f"work.{key}: {error} (case {case.name})") from error


def compute_peak(problem: Problem, target: Target) -> tuple[float, str] | None:
    """The rate of the fastest unit for the problem's precision or a wider one, and its name; without a precision, of
    the fastest of all. None where no rate is known.
    """
    precision = problem.work.get("dtype", "")
    enough = PRECISIONS[: PRECISIONS.index(precision) + 1] if precision else PRECISIONS
    return max(((target.peaks[key], n) for n in enough if (key := f"flops.{n}") in target.peaks), default=None)


def floor_us(problem: Problem, case: Case, target: Target) -> tuple[float, str]:
    """The least time that a case can take on a target, in µs, and what sets it; 0.0 and why, where none is known."""
    need, found = work(problem, case), []
    headroom = _HEADROOM.get(target.kind, 1.0)
    if need.flops is not None and (peak := compute_peak(problem, target)):
        rate = peak[0] * headroom
        why = f"{quantity(need.flops, 'FLOP')} at {quantity(rate, 'FLOP/s')} ({peak[1]})"
        found.append((1e6 * need.flops / rate, why))
    if need.bytes is not None:
        found += _traffic(need.bytes, target, headroom)
    if found:
        return max(found)
    if not problem.work:
        return 0.0, f"no floor: {'its format says nothing of' if problem.origin else 'problem.yaml has no'} work"
    return 0.0, f"no floor: no peak rates are known for {target.name}"


def describe(problem: Problem, case: Case, target: Target) -> str:
    """A case's work and floor in a line, for a person."""
    need = work(problem, case)
    parts = [
        quantity(need.flops, "FLOP") if need.flops is not None else "",
        quantity(need.bytes, "B") if need.bytes is not None else "",
        f"{need.intensity:.3g} FLOP/B" if need.intensity is not None else "",
    ]
    least, why = floor_us(problem, case, target)
    floor = f"floor {least:.3g} µs on {target.name}: {why}" if least else why
    return "; ".join(filter(None, [", ".join(filter(None, parts)), floor]))


def _traffic(amount: float, target: Target, headroom: float) -> list[tuple[float, str]]:
    """All of it through the cache, and what that cannot hold through main memory; nothing where no rate is known."""
    memory = target.peaks.get("bytes", 0.0)
    cache = target.peaks.get("bytes.cache", memory * _CACHE_FACTOR)
    beyond = amount - target.sizes.get("cache", math.inf)
    ways = [(amount, cache * headroom, "cache"), *([(beyond, memory * headroom, "memory")] if beyond > 0 else [])]
    return [
        (1e6 * size / rate, f"{quantity(size, 'B')} at {quantity(rate, 'B/s')} ({where})")
        for size, rate, where in ways
        if rate
    ]


def quantity(value: float, unit: str) -> str:
    """Three digits and a prefix: 67.1 MFLOP."""
    power = min(int(math.log10(value) // 3), 6) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}{unit}"
