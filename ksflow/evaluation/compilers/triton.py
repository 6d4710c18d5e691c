"""Triton ahead of time, for NVIDIA and AMD, without a GPU: `triton_box.py` compiles, in a sandbox."""

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ksflow.evaluation.compilers import resources
from ksflow.evaluation.compilers.boxes import CompileJob, CompileRequest, DeviceFunction, Toolchain
from ksflow.evaluation.compilers.nvcc import bundled_disassembler
from ksflow.kernels.source.launches import CaseLaunch
from ksflow.records import Json

POINTERS = {
    "float64": "*fp64", "float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "float8_e4m3fn": "*fp8e4nv",
    "float8_e4m3fnuz": "*fp8e4b8", "float8_e5m2": "*fp8e5", "float8_e5m2fnuz": "*fp8e5b16", "int64": "*i64",
    "int32": "*i32", "int16": "*i16", "int8": "*i8", "uint8": "*u8", "bool": "*i1",
}  # fmt: skip
"""Torch dtype -> Triton's type of a pointer to it."""
_ALIGNED = 16
_INT32 = 1 << 31
_FRAME = re.compile(r'^(?:Traceback| {2}File "|Please share the reproducer|Internal Triton)')
_DUMP = re.compile(r"^(?:#\w+ = #|#loc|module )", re.MULTILINE)  # the compiler's dump of its input begins here
_PASS = re.compile(r"Pipeline failed while executing \[`(\w+)`")
_ERROR = re.compile(r"(?:^|: )error: ", re.MULTILINE)


class Triton(Toolchain):
    """The installed Triton. Kernels compile at run time, so there is no host mode."""

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        """Return one job for each variant; launches that differ only in their cases are compiled once."""
        common = {"source": request.main, "target": _target(request.target.march)}
        common["disassembler"] = bundled_disassembler() if self.platform == "cuda" else ""

        def distil(answer: Json) -> Json:
            return {"entries": [_row(entry) for entry in answer["entries"]]}

        def job(variant: int, values: Mapping[str, str]) -> CompileJob:
            order, files = {**common, "entries": _entries(request, variant)}, request.files(values)
            return CompileJob("triton_box.py", order, files, self.version, distil, _explained)

        return [job(variant, values) for variant, values in enumerate(request.variants)]

    def entry(self, request: CompileRequest, units: Sequence[Json], variant: int, step: CaseLaunch) -> DeviceFunction:
        """Return the function compiled for a launch; the compiler sets its threads and shared memory."""
        row = units[variant]["entries"][_entries(request, variant).index(_wanted(request, step))]
        width = _target(request.target.march)[2]
        block = (row["warps"] * width, 1, 1)
        return DeviceFunction(row["code"], row["kernel"], block, row["shared"], row["facts"], spare=True)


def _target(march: str) -> tuple[str, int | str, int]:
    if march.startswith("gfx"):
        return "hip", march.partition(":")[0], 64
    return "cuda", int(re.sub(r"\D", "", march)), 32


def _entries(request: CompileRequest, variant: int) -> list[Json]:
    plans = [plan for plan in request.plans.values() if plan.variant == variant]
    wanted = [_wanted(request, step) for plan in plans for step in plan.launches]
    return list({json.dumps(entry, sort_keys=True): entry for entry in wanted}.values())


def _wanted(request: CompileRequest, step: CaseLaunch) -> Json:
    plan = next(iter(request.plans.values()))  # plans differ only in the sizes of workspaces
    arrays = {
        "arg": [arg.dtype for arg in request.problem.args],
        "workspace": [workspace.dtype for workspace in plan.workspaces],
    }
    args: list[list[str | bool]] = []  # type, and whether it is a multiple of 16
    for kind, value in step.args:
        if kind == "int":
            args.append(["i32" if -_INT32 <= value < _INT32 else "i64", value % _ALIGNED == 0])
        else:
            args.append([POINTERS[arrays[kind][value]], True])
    common = {"kernel": step.kernel, "warps": step.warps, "stages": step.stages}
    return {**common, "args": args, "constants": dict(step.constants)}


def _row(entry: Json) -> Json:
    """Return only values of valid types: a source that is executed may have written anything."""
    name, shared, warps, code = str(entry["kernel"]), int(entry["shared"]), int(entry["warps"]), str(entry["code"])
    if not (0 <= shared < 1 << 20 and 1 <= warps <= 64):
        raise ValueError(f"{name}: {shared} bytes of shared memory, {warps} warps")
    if entry["asm"]:
        facts = resources.amdgcn(str(entry["asm"])).get(name, {})
    else:
        facts = resources.ptxas(str(entry["log"])).get(name, {})
        counts = resources.sass(str(entry["sass"])).get(name) or resources.ptx(str(entry["ptx"]))
        facts["instructions"] = counts
    facts["shared_bytes"] = 0  # all of it is dynamic
    return {"code": code, "kernel": name, "shared": shared, "warps": warps, "facts": facts}


def _explained(log: str) -> str:
    match = _ERROR.search(log)
    text = log[match.start() :].removeprefix(": ") if match else log
    text = text[: dump.start()] if (dump := _DUMP.search(text)) else text
    if broken := _PASS.search(log):
        text = f"error: Triton's own pass {broken[1]} fails on this kernel: rewrite it\n{text}"
    return "\n".join(line for line in text.splitlines() if not _FRAME.match(line))


@cache
def find(platform: str) -> Triton | None:
    """Return the installed Triton, without importing it; None if there is none."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    number = re.search(r"__version__ = ['\"]([\w.+]+)", Path(spec.origin).read_text(encoding="utf-8"))
    return Triton(version=f"triton {number[1] if number else 'of unknown version'}", platform=platform)
