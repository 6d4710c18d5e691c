"""FlashInfer's definitions: `run(...)` on tensors drawn at random, given as numbers, read from safetensors files, or
made by a function of the definition, which runs where its reference does.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ksflow.evaluation.judge.tolerance import rms
from ksflow.evaluation.sandbox.runners.pytree import Tree
from ksflow.formats.flashinfer.contents import draw_contents, draw_named
from ksflow.formats.flashinfer.solutions import FLOAT4, axis_sizes
from ksflow.formats.runtime import Json, Params, SourceFiles, Task, vary_contents

_MOST_HEADER = 100 << 20
_KINDS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


class FlashInfer(Task):
    """spec: `definition`, `inputs` of each workload, `root` of the data set, `rtol`, `atol`, `ratio`, by workload `own`
    ones of these and `most`, which no error exceeds; `sol`: whether it is SOL-ExecBench's."""

    own_check = True

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        self._module = files.load("definition_reference.py")
        self._spec = spec
        self._definition = spec["definition"]
        self._packed = [row["dtype"] in FLOAT4 for row in self._definition["inputs"].values()]

    def call_spec(self, params: Params) -> Json:
        return {"entry": "run", "spread": True}

    def inputs(self, params: Params, seed: int) -> Tree:
        kinds = self._spec["inputs"].get(str(params.get("workload", "")), {})
        sizes = axis_sizes(self._definition["axes"], params)
        made: Mapping[str, Any] = {}
        if any(kind["type"] == "custom" for kind in kinds.values()):
            scalars = {name: kind["value"] for name, kind in kinds.items() if kind["type"] == "scalar"}
            entry = self._definition["custom_inputs_entrypoint"]
            made = getattr(self._module, entry)({**sizes, **scalars}, torch.device("cuda"))
            if lost := [name for name, kind in kinds.items() if kind["type"] == "custom" and name not in made]:
                raise ValueError(f"{entry} makes no {lost[0]}")
        tensors = self._definition["inputs"]
        found = [self._input(name, row, kinds.get(name, {}), sizes, made) for name, row in tensors.items()]
        return [value.view(torch.uint8) if four else value for value, four in zip(found, self._packed, strict=True)]

    def answer(self, tree: Tree, params: Params) -> Tree:
        leaves = zip(tree, self._packed, strict=True)
        result = self._module.run(*(leaf.view(torch.float4_e2m1fn_x2) if four else leaf for leaf, four in leaves))
        return [result[name] for name in self._definition["outputs"]] if isinstance(result, Mapping) else result

    def objection(self, tree: Tree, outputs: Tree, params: Params) -> str:
        bounds = {**self._spec, **self._spec.get("own", {}).get(str(params.get("workload", "")), {})}
        got, wanted = (
            list(side) if isinstance(side, list | tuple) else [side] for side in (outputs, self.answer(tree, params))
        )
        for name, mine, theirs in zip(self._definition["outputs"], got, wanted, strict=True):
            if difference := _differs(mine, torch.as_tensor(theirs), bounds):
                return f"{name}: {difference}"
        return ""

    def _input(self, name: str, entry: Json, source: Json, sizes: Mapping[str, int], made: Mapping[str, Any]) -> Any:
        kind = source.get("type")
        if kind == "scalar":
            return source["value"]
        if kind == "custom":
            return made[name].to("cuda") if isinstance(made[name], torch.Tensor) else made[name]
        if kind == "safetensors":
            contents = read_tensor(_file(Path(self._spec["root"]), source["path"]), source["tensor_key"]).to("cuda")
            return vary_contents(contents) if contents.is_floating_point() else contents  # whole numbers may be indices
        shape = [sizes[axis] if axis in sizes else int(axis) for axis in entry["shape"]]
        if entry["dtype"] in FLOAT4:
            return torch.randint(0, 256, [*shape[:-1], shape[-1] // 2], dtype=torch.uint8, device="cuda")
        dtype = getattr(torch, entry["dtype"])
        if self._spec.get("sol") and dtype.is_floating_point and dtype.itemsize > 1:
            return draw_named(name, shape, dtype, str(entry.get("description") or "").lower())
        return draw_contents(shape, dtype)


def _differs(got: torch.Tensor, want: torch.Tensor, bounds: Json) -> str:
    if got.shape != want.shape:
        return f"its shape is {list(got.shape)}, not {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"its dtype is {got.dtype}, not {want.dtype}"
    mine, theirs = got.double(), want.double()
    if not bool((mine.isfinite() | ~theirs.isfinite()).all()):
        return "it holds NaN or infinity where the reference does not"
    same, bound = mine == theirs, torch.zeros_like(theirs)
    if want.dtype.is_floating_point:
        rtol, atol = bounds["rtol"], bounds["atol"]
        widest = min(atol, max(atol, rtol) * rms(theirs))  # no wider than the answer's own size
        bound = rtol * theirs.abs()
        bound = bound + widest if bounds.get("sol") else torch.clamp_min(bound, widest)
        same |= (mine.isnan() & theirs.isnan()) | ((mine - theirs).abs() <= bound)
    wrong = ~same
    right = 1 - float(wrong.double().mean()) if wrong.numel() else 1.0
    besides = ""
    if "most" in bounds and bool(((mine - theirs).abs() > bounds["most"]).any()):
        besides = f", with one by more than {bounds['most']:g}"
    elif not bool(wrong.any()) or (right >= bounds["ratio"] and not (besides := _together(mine, theirs, bound))):
        return ""
    index = int(wrong.reshape(-1).int().argmax())
    first = f"first at {index}: {float(mine.reshape(-1)[index]):.6g} for {float(theirs.reshape(-1)[index]):.6g}"
    return f"{int(wrong.sum())} of {wrong.numel()} elements are off{besides}, {first}"


def _together(mine: torch.Tensor, theirs: torch.Tensor, bound: torch.Tensor) -> str:
    """What a share of elements that may be wrong is held to: all errors together are no larger than their bounds are.

    Rounding that carries a few elements over a small bound passes; work that was left out for a few does not.
    """
    sound = theirs.isfinite()
    if not bool(bound.any()):  # whole numbers have no size by which to be off
        return ""
    off, most = rms(mine[sound], theirs[sound]), rms(bound[sound])
    return f", with all others by {off:.3g} as a root mean square, which may be {most:.3g}" if off > most else ""


create = FlashInfer


def _file(root: Path, path: str) -> Path:
    """A workload's file: in the root, in a folder around it, or in the root by the end of its path."""
    parts = Path(path).parts
    places = (
        *(above / path for above in (root, *root.parents)),
        *(root.joinpath(*parts[at:]) for at in range(1, len(parts))),
    )
    return next(filter(Path.is_file, places), root / path)


def read_tensor(file: Path, key: str) -> torch.Tensor:
    """One tensor of a safetensors file: a length, a header in JSON, bytes. ValueError."""
    try:
        with file.open("rb") as source:
            (size,) = struct.unpack("<Q", source.read(8))
            header = json.loads(source.read(size)) if size <= _MOST_HEADER else {}
            row = header[key]
            begin, end = row["data_offsets"]
            source.seek(8 + size + begin)
            data = bytearray(source.read(end - begin))
        return torch.frombuffer(data, dtype=_KINDS[row["dtype"]]).reshape(row["shape"])
    except FileNotFoundError as error:
        raise ValueError(f"{file} is not here; fetch it, or use problem.workloads=random") from error
    except (OSError, struct.error, ValueError, KeyError) as error:
        pointer = file.is_file() and file.read_bytes()[:7] == b"version"
        hint = " (a Git LFS pointer? git lfs pull fetches the file)" if pointer else ""
        raise ValueError(f"{file}: no tensor {key!r} can be read{hint}") from error
