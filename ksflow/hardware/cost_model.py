"""What a case needs at least: its arithmetic and its traffic, from problem.yaml's `work`, and the floor they set.

A time below the floor is impossible on the target, whoever measured it. So every ceiling is optimistic: the highest
rates, data that is already in the cache, arithmetic and traffic that overlap fully. Where something is not known there
is no floor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ksflow.records import Case, Problem, Scalar, Target
from ksflow.source.expressions import calculate

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")
"""The wider first: who can do with fp8 can do with bf16."""
_KEYS = ("flops", "bytes", "dtype")
_HEADROOM = 1.25
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
    numbers = {name: value for name, value in names.items() if isinstance(value, int | float)}
    value = calculate(expression.strip(), numbers)
    if value < 0:
        raise ValueError(f"{expression!r} is negative: {value:g}")
    return float(value)


def work(problem: Problem, case: Case) -> Work:
    """What a case needs. ValueError where an expression is wrong."""
    return Work(
        *(evaluate(problem.work[key], case.params) if key in problem.work else None for key in ("flops", "bytes"))
    )


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


def floor_us(problem: Problem, case: Case, target: Target) -> tuple[float, str]:
    """The least time that a case can take on a target, in µs, and what sets it; 0.0 and why, where none is known."""
    need = work(problem, case)
    found = [
        bound
        for bound in (_arithmetic(need.flops, problem.work.get("dtype", ""), target), _traffic(need.bytes, target))
        if bound
    ]
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


def _arithmetic(flops: float | None, precision: str, target: Target) -> tuple[float, str] | None:
    """By the fastest unit for this precision or a wider one; without a precision, by the fastest of all."""
    enough = PRECISIONS[: PRECISIONS.index(precision) + 1] if precision else PRECISIONS
    rates = [(target.peaks[key], name) for name in enough if (key := f"flops.{name}") in target.peaks]
    if flops is None or not rates:
        return None
    peak, unit = max(rates)
    rate = peak * _headroom(target)
    return 1e6 * flops / rate, f"{quantity(flops, 'FLOP')} at {quantity(rate, 'FLOP/s')} ({unit})"


def _traffic(amount: float | None, target: Target) -> tuple[float, str] | None:
    """All of it through the cache; what the cache cannot hold through main memory too."""
    memory, cache = target.peaks.get("bytes"), target.peaks.get("bytes.cache")
    if amount is None or (memory is None and cache is None):
        return None
    inner = (cache if cache is not None else (memory or 0.0) * _CACHE_FACTOR) * _headroom(target)
    bounds = [(1e6 * amount / inner, f"{quantity(amount, 'B')} at {quantity(inner, 'B/s')} (cache)")]
    beyond = amount - target.sizes.get("cache", math.inf)
    if memory is not None and beyond > 0:
        outer = memory * _headroom(target)
        bounds.append((1e6 * beyond / outer, f"{quantity(beyond, 'B')} at {quantity(outer, 'B/s')} (memory)"))
    return max(bounds)


def _headroom(target: Target) -> float:
    return _HEADROOM if target.kind == "gpu" else 1.0


def quantity(value: float, unit: str) -> str:
    """Three digits and a prefix: 67.1 MFLOP."""
    power = min(int(math.log10(value) // 3), 6) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}{unit}"
