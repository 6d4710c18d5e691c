"""FlashInfer's definitions: `run(...)` on tensors drawn at random, given as numbers or read from safetensors files."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ksflow.evaluation.judge.tolerance import rms
from ksflow.evaluation.sandbox.runners.pytree import Tree
from ksflow.formats.runtime import Json, Params, SourceFiles, Task, vary_contents

_MOST_HEADER = 100 << 20
_CLAMP = 2.0
_WHOLE = {torch.int8: 128, torch.int16: 1024, torch.int32: 1024, torch.int64: 1024}
_KINDS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


class FlashInfer(Task):
    """spec: `definition`, `inputs` of each workload, `root` of the data set, `rtol`, `atol`, `ratio`."""

    own_check = True

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        self._run = files.load("definition_reference.py").run
        self._spec = spec
        self._definition = spec["definition"]

    def call_spec(self, params: Params) -> Json:
        return {"entry": "run", "spread": True}

    def inputs(self, params: Params, seed: int) -> Tree:
        kinds = self._spec["inputs"].get(str(params.get("workload", "")), {})
        return [self._input(name, row, kinds.get(name, {}), params) for name, row in self._definition["inputs"].items()]

    def answer(self, tree: Tree, params: Params) -> Tree:
        result = self._run(*tree)
        return [result[name] for name in self._definition["outputs"]] if isinstance(result, Mapping) else result

    def objection(self, tree: Tree, outputs: Tree) -> str:
        got, wanted = (
            list(side) if isinstance(side, list | tuple) else [side] for side in (outputs, self.answer(tree, {}))
        )
        for name, mine, theirs in zip(self._definition["outputs"], got, wanted, strict=True):
            if difference := self._differs(mine, torch.as_tensor(theirs)):
                return f"{name}: {difference}"
        return ""

    def _input(self, name: str, entry: Json, source: Json, params: Params) -> Any:
        if source.get("type") == "scalar":
            return source["value"]
        if source.get("type") == "safetensors":
            file = Path(self._spec["root"]) / source["path"]
            contents = read_tensor(file, source["tensor_key"]).to("cuda")
            return vary_contents(contents) if contents.is_floating_point() else contents  # whole numbers may be indices
        axes = self._definition["axes"]
        shape = [int(axes[axis]["value"] if axes[axis]["type"] == "const" else params[axis]) for axis in entry["shape"]]
        return draw_contents(shape, getattr(torch, entry["dtype"]))

    def _differs(self, got: torch.Tensor, want: torch.Tensor) -> str:
        if got.shape != want.shape:
            return f"its shape is {list(got.shape)}, not {list(want.shape)}"
        if got.dtype != want.dtype:
            return f"its dtype is {got.dtype}, not {want.dtype}"
        mine, theirs = got.double(), want.double()
        if not bool((mine.isfinite() | ~theirs.isfinite()).all()):
            return "it holds NaN or infinity where the reference does not"
        same, bound = mine == theirs, torch.zeros_like(theirs)
        if want.dtype.is_floating_point:
            rtol, atol = self._spec["rtol"], self._spec["atol"]
            widest = min(atol, max(atol, rtol) * rms(theirs))  # no wider than the answer's own size
            bound = torch.clamp_min(rtol * theirs.abs(), widest)
            same |= (mine.isnan() & theirs.isnan()) | ((mine - theirs).abs() <= bound)
        wrong = ~same
        right = 1 - float(wrong.double().mean()) if wrong.numel() else 1.0
        besides = ""
        if not bool(wrong.any()) or (right >= self._spec["ratio"] and not (besides := _together(mine, theirs, bound))):
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


def draw_contents(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Random contents as upstream draws them: normal, clamped where a type is narrow, small whole numbers."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, device="cuda").bool()
    if not dtype.is_floating_point:
        return torch.randint(-_WHOLE[dtype], _WHOLE[dtype], shape, dtype=dtype, device="cuda")
    if dtype.itemsize == 1:
        return torch.randn(shape, device="cuda").clamp_(-_CLAMP, _CLAMP).to(dtype)
    contents: torch.Tensor = torch.randn(shape, dtype=dtype, device="cuda")
    return contents


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
