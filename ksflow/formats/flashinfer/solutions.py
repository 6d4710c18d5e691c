"""FlashInfer's solutions, in and out: text only."""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from ksflow.kernels.source.expressions import calculate
from ksflow.records import Json, Kernel

_PACKED = " (given as uint8, two numbers a byte: `.view(torch.float4_e2m1fn_x2)`)"
FLOAT4 = {"float4_e2m1": _PACKED, "float4_e2m1fn_x2": _PACKED}
"""Types that the judge hands over as bytes -> what a statement says of that."""
_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
_FLAGS = {"cflags": [], "cuda_cflags": ["-O3", "--use_fast_math"], "ld_flags": ["-lcuda"]}
"""What upstream takes where a solution has compile_options that lack these; none where it has no compile_options."""


def params(work: Json) -> Json:
    """A case's parameters: the axes, and the workload's name where that says more than they do."""
    plain = all(tensor["type"] == "random" for tensor in work["inputs"].values()) and not work.get("tolerance")
    return dict(work["axes"]) if plain and work["axes"] else {**work["axes"], "workload": work["uuid"]}


def axis_sizes(axes: Json, given: Mapping[str, int]) -> dict[str, int]:
    """The size of each axis: constant, of a workload, or computed from those before it. Raises ValueError."""
    if missing := [name for name, axis in axes.items() if axis["type"] == "var" and name not in given]:
        raise ValueError(f"it has no size for the axis {missing[0]}")
    known = {name: axis.get("value", given.get(name)) for name, axis in axes.items() if axis["type"] != "expr"}
    for name, axis in axes.items():
        if axis["type"] == "expr":
            value = calculate(axis["expression"], known)
            if value < 0 or value != int(value):
                raise ValueError(f"axis {name}: {axis['expression']} is {value:g}, which is no size")
            known[name] = int(value)
    return known


def compile_lines(sources: Iterable[str], entry: str, options: Json | None) -> str:
    """Lines that compile C++ and CUDA files beside them with PyTorch's bindings, and have the entry point as `_run`."""
    flags = {key: (options or {}).get(key, usual if options else []) for key, usual in _FLAGS.items()}
    names = sorted(name for name in sources if Path(name).suffix in _SOURCES)
    mark = sha256(repr((names, flags)).encode()).hexdigest()[:12]
    return f"""import os
from torch.utils.cpp_extension import load

_at = os.path.dirname(os.path.realpath(__file__))
_cutlass = os.environ.get("CUTLASS_DIR", "/usr/local/cutlass")
_run = load(
    "solution_{mark}", [os.path.join(_at, name) for name in {names}], extra_cflags={flags["cflags"]},
    extra_cuda_cflags={flags["cuda_cflags"]}, extra_ldflags={flags["ld_flags"]},
    extra_include_paths=[_at, _cutlass + "/include", _cutlass + "/tools/util/include"],
).{entry}"""


def adapt_solution(task: Json, found: str, destination: bool, zeros: bool = False) -> str:
    """The text of a file whose `run` calls a solution's function, whichever way that hands over outputs.

    found: lines that have the function as `_run`. zeros: what outputs are made of, else anything.
    """
    inputs, outputs = ", ".join(task["inputs"]), ", ".join(task["outputs"])
    packed = [name for name, item in task["inputs"].items() if item["dtype"] in FLOAT4]
    lines = [f"    {name} = {name}.view(torch.float4_e2m1fn_x2)" for name in packed]
    if destination:  # outputs are made by the sizes of the inputs
        first = next((name for name, item in task["inputs"].items() if item["shape"]), next(iter(task["inputs"])))
        lines += [
            f"    {name} = torch.{'zeros' if zeros else 'empty'}"
            f"(({''.join(f'{_size(task, axis)}, ' for axis in item['shape'] or ())}), "
            f"dtype=torch.{item['dtype']}, device={first}.device)"
            for name, item in task["outputs"].items()
        ]
        lines += [f"    _run({inputs}, {outputs})", f"    return {outputs}"]
    elif lines:
        lines.append(f"    return _run({inputs})")
    body = [f"def run({inputs}):", *lines] if lines else ["run = _run"]
    return "\n".join(["import torch", found, "", *body, ""])


def _size(task: Json, axis: str) -> str:
    """An axis, read off an input that has it, or computed from such."""
    known = task["axes"].get(axis, {})
    if known.get("type") == "const":
        return str(known["value"])
    for name, item in task["inputs"].items():
        if axis in (item["shape"] or ()) and item["dtype"] not in FLOAT4:
            return f"{name}.shape[{item['shape'].index(axis)}]"
    if known.get("type") == "expr":
        return f"int({re.sub(r'[A-Za-z_][A-Za-z_0-9]*', lambda name: _size(task, name[0]), known['expression'])})"
    return axis


def solution(definition: str, name: str, kernel: Kernel, entry: str, hardware: str) -> Json:
    """A solution as the format has it; hardware: empty for SOL-ExecBench's format."""
    kind: Json = {"language": kernel.language, "target_hardware": [hardware]}
    if not hardware:
        kind = {"languages": [kernel.language.replace("python", "pytorch")], "target_hardware": ["LOCAL"]}
    return {
        "name": name,
        "definition": definition,
        "author": "ksflow",
        "description": kernel.report,
        "spec": {
            **kind,
            "entry_point": f"{next(iter(kernel.files))}::{entry}",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": body} for path, body in kernel.files.items()],
    }
