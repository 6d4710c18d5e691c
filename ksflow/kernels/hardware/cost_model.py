"""A case's arithmetic and traffic, from problem.yaml's `work`, and the floor of its time that follows.

A time below the floor is impossible on the target: it is the judge's limit, not a goal. So every rate is optimistic:
the highest ones, data already in the fastest cache, arithmetic and traffic that overlap fully. If a figure is unknown,
there is no floor. The goal of a kernel is the `roofline`.
"""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ksflow.kernels.source.expressions import calculate, numbers
from ksflow.records import Case, Problem, Scalar, Target

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")
"""From wide to narrow: hardware may use any wider precision."""
_KEYS = ("flops", "bytes", "dtype")
_HEADROOM = {"gpu": 1.25}  # GPUs clock higher than their data sheets assume
_MEASURED_HEADROOM = 2.0
"""Over the measured rates of a CPU's cores: other processes may have taken half, and a load may run beside a store."""
_CACHE_FACTOR = 10.0  # how much faster than main memory a cache of unknown bandwidth may be


@dataclass(frozen=True)
class CaseWork:
    """Operations and bytes of one case; None if problem.yaml does not tell."""

    flops: float | None
    bytes: float | None

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


def evaluate(expression: str, names: Mapping[str, Scalar]) -> float:
    """Return the value of an arithmetic expression over a case's parameters. Raises ValueError."""
    value = calculate(expression.strip(), numbers(names))
    if value < 0:
        raise ValueError(f"{expression!r} is negative: {value:g}")
    return float(value)


def extents(text: str, params: Mapping[str, Scalar]) -> tuple[int, ...] | None:
    """Return `m, k // 128` as numbers for a case's parameters; None if empty. Raises ValueError, SyntaxError."""
    if not text.strip():
        return None
    parsed = ast.parse(text.strip(), mode="eval").body
    parts = parsed.elts if isinstance(parsed, ast.Tuple) else [parsed]
    return tuple(int(evaluate(ast.unparse(part), params)) for part in parts)


def work(problem: Problem, case: Case) -> CaseWork:
    """Return a case's work. Raises ValueError for an invalid expression."""
    formulas = problem.work
    return CaseWork(*(evaluate(formulas[key], case.params) if key in formulas else None for key in ("flops", "bytes")))


def check(spec: Mapping[str, str], cases: tuple[Case, ...]) -> None:
    """Check that every expression gives a number for every case. Raises ValueError, which names the key."""
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


def compute_peak(precision: str, rates: Mapping[str, float]) -> tuple[float, str] | None:
    """Return the rate and name of the fastest unit for a precision ("" for any) or a wider one; None if unknown."""
    enough = PRECISIONS[: PRECISIONS.index(precision) + 1] if precision else PRECISIONS
    return max(((rates[key], n) for n in enough if (key := f"flops.{n}") in rates), default=None)


def floor_us(problem: Problem, case: Case, target: Target) -> tuple[float, str]:
    """Return a case's least time on a target, in µs, and its cause; 0.0 and the reason if unknown."""
    need, rates, floors = work(problem, case), _ceilings(target), []
    if "regime" in problem.work:
        return 0.0, "no floor: the work is its format's estimate"
    if need.flops is not None and (peak := compute_peak(problem.work.get("dtype", ""), rates)):
        why = f"{quantity(need.flops, 'FLOP')} at {quantity(peak[0], 'FLOP/s')} ({peak[1]})"
        floors.append((1e6 * need.flops / peak[0], why))
    if need.bytes is not None:  # all through the cache, and what is beyond its size through main memory
        beyond = need.bytes - target.sizes.get("cache", math.inf)
        for size, key, where in ((need.bytes, "bytes.cache", "cache"), (beyond, "bytes", "memory")):
            if key in rates and size > 0:
                why = f"{quantity(size, 'B')} at {quantity(rates[key], 'B/s')} ({where})"
                floors.append((1e6 * size / rates[key], why))
    if floors:
        return max(floors)
    if not problem.work:
        return 0.0, f"no floor: {'its format says nothing of' if problem.origin else 'problem.yaml has no'} work"
    return 0.0, f"no floor: no peak rates are known for {target.name}"


def _ceilings(target: Target) -> dict[str, float]:
    """Return rates that nothing on a target exceeds: peaks with headroom, limited by a multiple of measured rates."""
    headroom = _HEADROOM.get(target.kind, 1.0)
    rates = {key: peak * headroom for key, peak in target.peaks.items()}
    if "bytes" in rates:
        rates.setdefault("bytes.cache", rates["bytes"] * _CACHE_FACTOR)
    seen = {key: rate for key, rate in target.measured.items() if key.startswith("flops.")}
    levels = [rate for key, rate in target.measured.items() if key.startswith("bytes")]
    seen |= {"bytes.cache": max(levels)} if levels else {}
    return {key: min(rate, _MEASURED_HEADROOM * seen.get(key, math.inf)) for key, rate in rates.items()}


def quantity(value: float, unit: str) -> str:
    """Return three digits with a prefix: 67.1 MFLOP."""
    power = min(int(math.log10(value) // 3), 6) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}{unit}"
