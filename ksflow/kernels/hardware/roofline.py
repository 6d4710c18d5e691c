"""The roofline: a case's least time at realistic rates and traffic, its bound, and the share reached.

The floor of `cost_model` is the judge's limit, and optimistic, so that no honest time is below it. The roofline has no
headroom: on a GPU the data sheet's rates, with all traffic through main memory; on a CPU the measured rates of
the kernel's cores, and the level of memory that the traffic fits. So data in a faster cache, or a higher clock, can
exceed 100 %.
"""

from collections.abc import Iterable, Mapping

from ksflow.kernels.hardware.cost_model import CaseWork, compute_peak, floor_us, quantity, work
from ksflow.records import Case, Json, Problem, RooflineCase, Target, Timing, geomean


def roofline(problem: Problem, case: Case, target: Target, us: float) -> RooflineCase | None:
    """Return a time on the roofline, with the achieved rates; None without work or rates. Raises ValueError."""
    need = work(problem, case)
    limit = bound(need, problem.work.get("dtype", ""), target)
    if limit is None:
        return None
    bound_us, what, _ = limit
    only = {"memory": CaseWork(None, need.bytes), "compute": CaseWork(need.flops, None)}
    part = only.get(problem.work.get("regime", ""), CaseWork(None, None))  # the limit that the format takes alone
    theirs = bound(part, problem.work.get("dtype", ""), target)
    known = {
        "tflops": need.flops / us * 1e-6 if need.flops is not None else None,
        "gbs": need.bytes / us * 1e-3 if need.bytes is not None else None,
        "intensity": need.intensity,
        "bound_us": bound_us,
        "share": bound_us / us,
        "theirs": theirs[0] / us if theirs else None,
    }
    figures: Json = {name: float(f"{value:.4g}") for name, value in known.items() if value is not None}
    return RooflineCase(case=case.name, bound=what, **figures)


def bound(need: CaseWork, precision: str, target: Target) -> tuple[float, str, str] | None:
    """Return the least time in µs of so much work, its bound, and the (on a CPU measured) rate in words, or None."""
    rates = target.peaks if target.kind == "gpu" else target.measured
    ways = []
    if need.flops and (peak := compute_peak(precision, rates)):
        ways.append((1e6 * need.flops / peak[0], "compute", f"{quantity(peak[0], 'FLOP/s')} ({peak[1]})"))
    if need.bytes and (memory := _memory(need.bytes, rates)):
        ways.append((1e6 * need.bytes / memory[0], memory[1], quantity(memory[0], "B/s")))
    return max(ways, default=None)


def _memory(amount: float, rates: Mapping[str, float]) -> tuple[float, str] | None:
    """Return the rate and name of the smallest measured cache that holds so much, else of main memory."""
    sizes = sorted(int(key[6:]) for key in rates if key[:6] == "bytes." and key[6:].isdigit())
    if fit := next((size for size in sizes if amount <= size), None):
        return rates[f"bytes.{fit}"], "cache"
    known = ((rates[key], name) for key, name in (("bytes", "memory"), ("bytes.cache", "cache")) if key in rates)
    return next(known, None)


def describe(problem: Problem, case: Case, target: Target) -> str:
    """Describe a case's work, roofline and floor in one line."""
    need = work(problem, case)
    limit = bound(need, problem.work.get("dtype", ""), target)
    parts = [
        quantity(need.flops, "FLOP") if need.flops is not None else "",
        quantity(need.bytes, "B") if need.bytes is not None else "",
        f"{need.intensity:.3g} FLOP/B" if need.intensity is not None else "",
    ]
    near = f"roofline {limit[0]:.3g} µs: {limit[1]} at {limit[2]}" if limit else ""
    if not limit and need != CaseWork(None, None) and target.kind == "cpu":
        near = "no roofline: no probe ran here (is there a compiler?), and the floor is that of the instruction sets"
    least, why = floor_us(problem, case, target)
    floor = f"the judge's floor {least:.3g} µs: {why}" if least else why
    return "; ".join(filter(None, [", ".join(filter(None, parts)), near, floor]))


def rows(problem: Problem, target: Target, timings: Iterable[Timing]) -> tuple[RooflineCase, ...]:
    """Return a row for each timed benchmark that has a roofline."""
    cases = {case.name: case for case in problem.benchmarks}
    points = (roofline(problem, cases[timing.case], target, timing.us) for timing in timings if timing.case in cases)
    return tuple(row for row in points if row)


def share(rows: Iterable[RooflineCase], weights: Mapping[str, float], theirs: bool = False) -> float | None:
    """Return the geometric mean of the rows' shares (or `theirs`), by the weights of their cases; None without any."""
    known = [(value, weights.get(row.case, 1.0)) for row in rows if (value := row.theirs if theirs else row.share)]
    return geomean((value for value, _ in known), [weight for _, weight in known]) if known else None
