"""How near a time comes to what the data sheet allows: achieved rates, the bound that counts, the share reached.

The floor of `cost_model` is optimistic, so that no honest time is below it; the roofline takes the data sheet at its
word: no headroom for clocks, and all traffic through main memory (through the cache where no other rate is known). What
stays in a cache, or a chip that clocks higher, can therefore reach more than 100 %.
"""

from collections.abc import Iterable

from ksflow.hardware.cost_model import compute_peak, work
from ksflow.records import Case, Json, Problem, RooflineCase, Target, Timing, geomean


def roofline(problem: Problem, case: Case, target: Target, us: float) -> RooflineCase | None:
    """A time on the roofline; None where problem.yaml has no work or the target no peaks.

    Its rates are the achieved ones. ValueError where an expression of `work` is wrong.
    """
    need = work(problem, case)
    compute, _ = compute_peak(problem, target) or (None, "")
    bounds = [
        (1e6 * amount / peak, name)
        for name, amount, peak in (
            ("compute", need.flops, compute),
            ("memory", need.bytes, target.peaks.get("bytes", target.peaks.get("bytes.cache"))),
        )
        if amount and peak
    ]
    if not bounds:
        return None
    bound_us, bound = max(bounds)
    known = {
        "tflops": need.flops / us * 1e-6 if need.flops is not None else None,
        "gbs": need.bytes / us * 1e-3 if need.bytes is not None else None,
        "intensity": need.intensity,
        "bound_us": bound_us,
        "share": bound_us / us,
    }
    figures: Json = {name: float(f"{value:.4g}") for name, value in known.items() if value is not None}
    return RooflineCase(case=case.name, bound=bound, **figures)


def rows(problem: Problem, target: Target, timings: Iterable[Timing]) -> tuple[RooflineCase, ...]:
    """A row for each timed benchmark that has a roofline."""
    cases = {case.name: case for case in problem.benchmarks}
    found = (roofline(problem, cases[timing.case], target, timing.us) for timing in timings if timing.case in cases)
    return tuple(row for row in found if row)


def share(rows: Iterable[RooflineCase]) -> float | None:
    """The share of the roofline over all rows, as a geometric mean; None where there is none."""
    shares = [row.share for row in rows if row.share and row.share > 0]
    return geomean(shares) if shares else None
