"""What a compiler says of a kernel on a device, in words: registers, spills, shared memory, occupancy, instructions.

The rows are `Evidence.compiler`, one for each kernel and variant.
"""

from ksflow.records import CompiledKernel

_KIB = 1024


def cells(row: CompiledKernel) -> dict[str, str]:
    """Column -> text, in the order of a table; empty where nothing is known."""
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
    """The same in one line: `gemm BM=64: registers 128, spills 0 B, shared 48 KiB, occupancy 25 % (shared)`."""
    found = cells(row)
    name = " ".join(filter(None, [found.pop("kernel"), found.pop("variant")]))
    found.pop("target")
    return f"{name}: {', '.join(f'{key} {text}' for key, text in found.items() if text) or 'nothing is known'}"


def percent(value: float | None) -> str:
    """A fraction as a percentage; empty where it is not known."""
    return "" if value is None else f"{100 * value:.3g} %"


def _bytes(amount: int | None) -> str:
    if amount is None:
        return ""
    return f"{amount / _KIB:.4g} KiB" if amount >= _KIB else f"{amount:g} B"
