"""FlashInfer's definitions: `run(...)` on tensors drawn at random, given as numbers, read from safetensors files, or
made by a function of the definition, which runs where its reference does.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ksflow.evaluation.judge.elements import rms
from ksflow.evaluation.sandbox.runners.pytree import Tree
from ksflow.formats.flashinfer.solutions import FLOAT4, axis_sizes
from ksflow.formats.runtime import Params, SourceFiles, Task, vary_contents
from ksflow.records import Json

_MOST_HEADER = 100 << 20
_WHOLE = {torch.int8: 128, torch.int16: 1024, torch.int32: 1024, torch.int64: 1024}
_BY_NAME: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    (r"(?:.*_)?(?:layer)?norm\d*_weight", lambda x: 1 + 0.1 * x),
    (r"(?:.*_)?(?:layer)?norm\d*_bias", lambda x: 0.1 * x),
    (r"(?:rope_)?cos|cos_cached", torch.cos),
    (r"(?:rope_)?sin|sin_cached", torch.sin),
    (r"(?:.*_)?(?:rstd|std|variance|var)\d*", lambda x: x.abs() + 0.1),
    (r"A_cumsum", lambda x: (-0.1 * torch.rand_like(x)).cumsum(-1)),
    (r"A_log", lambda x: -1 - 4 * torch.rand_like(x)),
    (r"A", lambda x: -0.001 - torch.rand_like(x)),
    (r"g", lambda x: -5 * torch.rand_like(x)),
    (r"(?:attn|attention|routing)_weights|p_attn", lambda x: x.softmax(-1)),
    (r"(?:.*_)?(?:weights?|projs?|weight_matrix)\d*", lambda x: x / math.sqrt(x.shape[-1]) if x.ndim > 1 else x),
    (r".*_mask", lambda x: (x > 0).float()),
)
"""SOL-ExecBench's inputs: their names -> contents made of normal numbers."""
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
            entry = self._definition["custom_inputs_entrypoint"]
            made = getattr(self._module, entry)({**sizes}, torch.device("cuda"))
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
            return draw_named(name, shape, dtype)
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
    """Why errors, with those that a share may have, are together larger than their bounds; empty where they are not."""
    sound = theirs.isfinite()
    if not bool(bound.any()):  # whole numbers have no size by which to be off
        return ""
    off, most = rms(mine[sound], theirs[sound]), rms(bound[sound])
    return f", with all others by {off:.3g} as a root mean square, which may be {most:.3g}" if off > most else ""


create = FlashInfer


def _file(root: Path, path: str) -> Path:
    """A workload's file: in the root, by the end of its path, too, or in a folder around the root."""
    parts = Path(path).parts
    places = [*(root.joinpath(*parts[at:]) for at in range(len(parts))), *(above / path for above in root.parents)]
    return next(filter(Path.is_file, places), root / path)


def draw_contents(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Random contents as upstream draws them: normal, clamped where a type is narrow, small whole numbers."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, device="cuda").bool()
    if not dtype.is_floating_point:
        return torch.randint(-_WHOLE[dtype], _WHOLE[dtype], shape, dtype=dtype, device="cuda")
    if dtype.itemsize == 1:
        return torch.randn(shape, device="cuda").clamp_(-2.0, 2.0).to(dtype)
    contents: torch.Tensor = torch.randn(shape, dtype=dtype, device="cuda")
    return contents


def draw_named(name: str, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Random contents in the range that an input's name tells, as upstream has it; norms' weights and biases vary."""
    if name in ("attention_mask", "causal_mask") and shape[-2:-1] == shape[-1:]:
        return torch.full(shape, torch.finfo(dtype).min, dtype=dtype, device="cuda").triu(1)
    draw = next((draw for names, draw in _BY_NAME if re.fullmatch(names, name)), None)
    return draw(torch.randn(shape, device="cuda")).to(dtype) if draw else draw_contents(shape, dtype)


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
