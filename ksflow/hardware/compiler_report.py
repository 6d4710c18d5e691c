"""What a compiler says of a kernel on a device, in words: registers, spills, shared memory, occupancy, instructions.

Rows come from evidence["compiler"], one for each kernel and variant. Evidence is read from files and other machines, so
a row may lack anything, or hold something else.
"""

from ksflow.records import Evaluation, Json

_KIB = 1024


def rows(evaluation: Evaluation | None, name: str) -> list[Json]:
    """A table in the judge's evidence; empty where it has none."""
    found = evaluation.evidence.get(name) if evaluation else None
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def cells(row: Json) -> dict[str, str]:
    """Column -> text, in the order of a table; empty where nothing is known."""
    extra = [f"{row[key]} {name}" for key, name in (("agprs", "AGPR"), ("sgprs", "SGPR")) if row.get(key)]
    occupancy = percent(row.get("occupancy"))
    counted = _mapping(row, "instructions")
    matrix = [f"{n} {name}" for name, n in counted.items() if n and ("mma" in name.lower() or "mfma" in name.lower())]
    return {
        "kernel": str(row.get("kernel", "")),
        "variant": " ".join(f"{name}={value}" for name, value in _mapping(row, "variant").items()),
        "target": str(row.get("target", "")),
        "registers": " + ".join([str(row["registers"]), *extra]) if "registers" in row else "",
        "spills": _bytes(row, "spill_bytes"),
        "stack": _bytes(row, "stack_bytes") or _bytes(row, "scratch_bytes"),
        "shared": _bytes(row, "shared_bytes"),
        "occupancy": f"{occupancy} ({row['limited_by']})" if occupancy and row.get("limited_by") else occupancy,
        "matrix instructions": ", ".join(matrix) or ("none" if counted else ""),
    }


def line(row: Json) -> str:
    """The same in one line: `gemm BM=64: registers 128, spills 0 B, shared 48 KiB, occupancy 25 % (shared)`."""
    found = cells(row)
    name = " ".join(filter(None, [found.pop("kernel"), found.pop("variant")]))
    found.pop("target")
    return f"{name}: {', '.join(f'{key} {text}' for key, text in found.items() if text) or 'nothing is known'}"


def percent(value: object) -> str:
    """A fraction as a percentage; empty for what is no number."""
    return f"{100 * value:.3g} %" if isinstance(value, int | float) else ""


def _bytes(row: Json, key: str) -> str:
    amount = row.get(key)
    if not isinstance(amount, int | float):
        return ""
    return f"{amount / _KIB:.4g} KiB" if amount >= _KIB else f"{amount:g} B"


def _mapping(row: Json, key: str) -> Json:
    found = row.get(key)
    return found if isinstance(found, dict) else {}
