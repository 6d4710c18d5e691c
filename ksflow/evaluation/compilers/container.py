"""Device containers: code and launches for each case, in one JSON file.

Launches refer to code and pointers by index; sizes are numbers. The launcher computes nothing.
"""

import base64
import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import asdict

from ksflow import home
from ksflow.evaluation.compilers.boxes import CompileRequest, DeviceFunction, Toolchain
from ksflow.evaluation.compilers.occupancy import occupancy
from ksflow.kernels.source.tunables import number
from ksflow.records import Json

VERSION = 3
_ELF = b"\x7fELF\2\1"  # 64 bits, little-endian
_ALLOCATED, _NO_BITS = 2, 8


def assemble(request: CompileRequest, toolchain: Toolchain, units: Sequence[Json]) -> tuple[str, tuple[Json, ...]]:
    """Return the container's path, and a row of figures for each kernel and variant.

    Raises ValueError for an invalid launch.
    """
    codes: dict[str, int] = {}
    plans: Json = {}
    rows: dict[tuple[int, str, str], Json] = {}
    for case, plan in request.plans.items():
        launches = []
        for step in plan.launches:
            entry = toolchain.entry(request, units, plan.variant, step)
            launches.append(
                {
                    "code": codes.setdefault(entry.code, len(codes)),
                    "kernel": entry.kernel,
                    "grid": list(step.grid),
                    "block": list(entry.block),
                    "shared": entry.shared,
                    "pdl": step.pdl,
                    "args": [list(argument) for argument in step.args],
                    "parameters": entry.facts.get("parameters", []),
                    "spare": entry.spare,
                }
            )
            known = (plan.variant, entry.kernel, hashlib.sha256(entry.code.encode()).hexdigest())
            rows[known] = _figures(request, toolchain, plan.variant, entry, rows.get(known, {}))
        plans[case] = {
            "workspaces": [workspace.bytes for workspace in plan.workspaces],
            "tensor_maps": [asdict(described) for described in plan.tensor_maps],
            "launches": launches,
        }
    text = json.dumps({"version": VERSION, "platform": toolchain.platform, "codes": list(codes), "plans": plans})
    return store(text.encode(), "json"), tuple(rows.values())


def row(request: CompileRequest, toolchain: Toolchain, name: str, facts: Json) -> Json:
    """Return the figures of one kernel."""
    shown = {key: value for key, value in facts.items() if key != "parameters"}
    return {"kernel": name, "target": request.target.march, "compiler": toolchain.version, **shown}


def _figures(request: CompileRequest, toolchain: Toolchain, variant: int, entry: DeviceFunction, before: Json) -> Json:
    """Return an entry's figures; of several launches, with the largest shared memory and block size."""
    threads = entry.block[0] * entry.block[1] * entry.block[2]
    shared = entry.facts.get("shared_bytes", 0) + entry.shared
    figures = row(request, toolchain, entry.kernel, entry.facts) | {
        "shared_bytes": max(shared, before.get("shared_bytes", 0)),
        "threads": max(threads, before.get("threads", 0)),
        "variant": {name: number(value) for name, value in request.variants[variant].items()},
    }
    occupied = occupancy(request.target.march, figures["threads"], figures.get("registers", 0), figures["shared_bytes"])
    if occupied and "registers" in figures:
        figures |= {"occupancy": round(occupied.fraction, 4), "limited_by": occupied.limited_by}
    most = request.target.sizes.get("shared", figures["shared_bytes"])
    if figures["shared_bytes"] > most:
        raise ValueError(
            f"launch: {entry.kernel}: needs {figures['shared_bytes']} bytes of shared memory; "
            f"a block has at most {most} on {request.target.name}"
        )
    return figures


def store(content: bytes, ending: str) -> str:
    """Write content to a cache file named by its digest, and return the path. Concurrent runs may write the same."""
    name = hashlib.sha256(content).hexdigest()[:32]
    path = home.cache("build", name[:2], f"{name}.{ending}")
    path.parent.mkdir(parents=True, exist_ok=True)
    home.write(path, content)
    return str(path)


def strip_debug(container: bytes) -> bytes:
    """Return a container without debug sections: compilers write names of temporary files and times into them."""
    made = json.loads(container)
    return json.dumps({**made, "codes": [_bare(base64.b64decode(code)).hex() for code in made["codes"]]}).encode()


def _bare(code: bytes) -> bytes:
    """Return an ELF file with zeros in its debug sections, except for bytes that a loader may read; other files
    unchanged.

    Forged headers can hide nothing there: bytes of a segment, of another section or of a header are kept.
    """
    if not code.startswith(_ELF):
        return code
    try:
        program, table = struct.unpack_from("<QQ", code, 32)
        program_size, programs, row_size, rows, names = struct.unpack_from("<5H", code, 54)
        sections = [struct.unpack_from("<IIQQQQ", code, table + row * row_size) for row in range(rows)]
        segments = [struct.unpack_from("<Q16xQ", code, program + row * program_size + 8) for row in range(programs)]
        first_name = sections[names][4]
    except (struct.error, IndexError, OverflowError):
        return code
    spans = [(0, 64), (table, rows * row_size), (program, programs * program_size), *segments]
    debug: list[tuple[int, int]] = []
    for name, kind, flags, _, offset, size in sections:
        bare = code.startswith((b".debug_", b".nv_debug_"), first_name + name) and not flags & _ALLOCATED
        (debug if bare else spans).append((offset, 0 if kind == _NO_BITS else size))
    if sum(size for _, size in (*spans, *debug)) > 3 * len(code):  # not a compiler's output
        return code
    made = bytearray(code)
    for offset, size in debug:
        made[offset : offset + size] = bytes(len(made[offset : offset + size]))
    for offset, size in spans:
        made[offset : offset + size] = code[offset : offset + size]
    return bytes(made)
