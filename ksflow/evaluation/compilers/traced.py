"""Languages that are Python packages and compile when they run (CuTe DSL, TileLang, Helion), without a GPU.

`traced_box.py` calls a kernel's `custom_kernel` once, in a sandbox, on empty tensors of the first benchmark's sizes:
its kernels are compiled for the target, and not launched (`languages/NAME_trace.py`). Not covered: kernels for other
sizes; correctness.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

from ksflow.evaluation.compilers import boxes, resources
from ksflow.evaluation.compilers.boxes import CompileJob, CompileRequest
from ksflow.evaluation.compilers.client import BuildResult
from ksflow.evaluation.compilers.nvcc import bundled_disassembler
from ksflow.kernels.hardware.cost_model import extents
from ksflow.kernels.languages import LANGUAGES
from ksflow.records import Arg, Json, Scalar

_IMPORT_S = 180.0  # importing these packages takes a minute on a busy machine
_STRIDES = re.compile(r"strides? \((.+)\)")
_ENTRY = re.compile(r"\.entry\s+(\w+)")
_USED = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


def build(request: CompileRequest) -> BuildResult:
    """Return the compiler's figures; an empty result if the problem does not describe its arguments."""
    problem, kernel = request.problem, request.kernel
    case = (*problem.benchmarks, *problem.tests)[0]
    try:
        tensors = [_tensor(arg, case.params) for arg in problem.args]
    except (ValueError, LookupError, SyntaxError):
        return BuildResult()
    order = {"source": request.main, "march": request.target.march, "tensors": tensors}
    order["disassembler"] = bundled_disassembler()
    tracer = LANGUAGES[kernel.language].tracer.read_text(encoding="utf-8")
    files = {**problem.files, **kernel.files, "ksflow_tracer.py": tracer}
    job = CompileJob("traced_box.py", order, files, version(kernel.language), _distilled)
    (result,) = boxes.run([job], replace(problem.limits, compile_s=max(problem.limits.compile_s, _IMPORT_S)))
    if not result.artefact:
        return result
    rows = json.loads(Path(result.artefact).read_text(encoding="utf-8"))["kernels"]
    common = {"target": request.target.march, "compiler": job.version}
    return BuildResult(cached=result.cached, resources=tuple({**common, **row} for row in rows))


@cache
def version(language: str) -> str:
    """Return the language's package with its version."""
    package = LANGUAGES[language].missing.rpartition(" ")[2]
    return f"{package} {metadata.version(package)}"


def _tensor(arg: Arg, params: Mapping[str, Scalar]) -> Json:
    """Return sizes, strides and type of an argument. Raises ValueError, LookupError or SyntaxError if not declared."""
    sizes = extents(arg.shape, params)
    if sizes is None:
        raise ValueError(f"{arg.name} has no shape")
    match = _STRIDES.search(arg.layout)
    declared = extents(match[1], params) if match else None
    strides = declared or [math.prod(sizes[index + 1 :]) for index in range(len(sizes))]
    return {"sizes": list(sizes), "strides": list(strides), "dtype": arg.dtype}


def _distilled(answer: Json) -> Json:
    """Return only values of valid types: a source that is executed may have written anything."""
    rows = []
    for entry in answer["kernels"]:
        ptx, usage = str(entry["ptx"]), _USED.findall(str(entry["usage"]))
        amd = resources.amdgcn(str(entry["asm"])) if entry["asm"] else {}
        counts = resources.sass(str(entry["sass"]))
        for name, registers, stack, shared in usage:
            used = {"registers": int(registers), "stack_bytes": int(stack), "shared_bytes": int(shared)}
            rows.append({"kernel": name, **used, "instructions": counts.get(name, {})})
        rows += [{"kernel": name, **{k: v for k, v in row.items() if k != "parameters"}} for name, row in amd.items()]
        if not usage and not amd:
            name = match[1] if (match := _ENTRY.search(ptx)) else "kernel"
            rows.append({"kernel": name, **({"instructions": resources.ptx(ptx)} if ptx else {})})
    return {"kernels": rows}
