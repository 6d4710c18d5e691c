"""A compiler's figures of a kernel, in words: registers, spills, shared memory, occupancy, instructions.

The rows are `Evidence.compiler`, one for each kernel and variant.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ksflow.kernels.source.launches import parse, plan_cases
from ksflow.records import CompiledKernel, Evaluation, Kernel, Problem

_KIB = 1024


def by_time(
    evaluation: Evaluation, kernel: Kernel | None, problem: Problem | None
) -> list[tuple[CompiledKernel, float]]:
    """Return rows with their share of the time over all shapes, largest first; in order, with 0, if the source does not
    tell which shape runs which. Variants with the same figures are one row.
    """
    names = {case.name for case in problem.benchmarks} if problem else set()
    times = {timing.case: timing.us for timing in evaluation.timings if timing.case in names}
    runs = _runs(times, kernel, problem)
    whole = math.fsum(times.values())
    alike: dict[str, list[CompiledKernel]] = defaultdict(list)
    for row in evaluation.evidence.compiler:
        alike[repr(replace(row, variant={}))].append(row)
    shares: list[tuple[CompiledKernel, float]] = []
    for rows in alike.values():
        keys = {(row.kernel, _key(row.variant)) for row in rows}
        share = math.fsum(us for case, us in times.items() if keys & runs.get(case, set())) / whole if whole else 0.0
        row = rows[0] if len(rows) == 1 else replace(rows[0], variant={"variants": len(rows)})
        shares.append((row, share))
    return sorted(shares, key=lambda pair: (-pair[1], not pair[0].instructions)) if runs else shares


def _runs(
    times: Mapping[str, float], kernel: Kernel | None, problem: Problem | None
) -> dict[str, set[tuple[str, frozenset[tuple[str, str]]]]]:
    """Return timed shape -> the device functions that it launches, each with its constants."""
    if kernel is None or problem is None:
        return {}
    try:
        if (plan := parse(kernel.main, kernel.language)) is None:
            return {}
        cases = {case.name: case.params for case in problem.benchmarks if case.name in times}
        variants, planned = plan_cases(plan, cases, [arg.name for arg in problem.args])
    except ValueError:  # the compiler has reported it
        return {}
    return {
        name: {(launch.kernel, _key(variants[case.variant])) for launch in case.launches}
        for name, case in planned.items()
    }


def _key(variant: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    return frozenset((name, str(value)) for name, value in variant.items())


def cells(row: CompiledKernel) -> dict[str, str]:
    """Return column -> text, in the order of a table; "" if unknown."""
    extra = [f"{count} {name}" for count, name in ((row.agprs, "AGPR"), (row.sgprs, "SGPR")) if count]
    occupancy, counted = percent(row.occupancy), row.instructions
    matrix = [f"{n} {name}" for name, n in counted.items() if n and ("mma" in name.lower() or "mfma" in name.lower())]
    return {
        "kernel": row.kernel,
        "variant": " ".join(f"{name}={value}" for name, value in row.variant.items()),
        "target": row.target,
        "registers": "" if row.registers is None else " + ".join([str(row.registers), *extra]),
        "spills": _bytes(row.spill_bytes),
        "stack": _bytes(row.stack_bytes) or _bytes(row.scratch_bytes),
        "shared": _bytes(row.shared_bytes),
        "occupancy": f"{occupancy} ({row.limited_by})" if occupancy and row.limited_by else occupancy,
        "matrix instructions": ", ".join(matrix) or ("none" if counted else ""),
    }


def line(row: CompiledKernel) -> str:
    """Return the same in one line: `gemm BM=64: registers 128, spills 0 B, shared 48 KiB, occupancy 25 % (shared)`."""
    figures = cells(row)
    name = " ".join(filter(None, [figures.pop("kernel"), figures.pop("variant")]))
    figures.pop("target")
    return f"{name}: {', '.join(f'{key} {text}' for key, text in figures.items() if text) or 'nothing is known'}"


def percent(value: float | None) -> str:
    """Return a fraction as a percentage; "" if unknown."""
    return "" if value is None else f"{100 * value:.3g} %"


def _bytes(amount: int | None) -> str:
    if amount is None:
        return ""
    return f"{amount / _KIB:.4g} KiB" if amount >= _KIB else f"{amount:g} B"
