"""KernelBench's files: `Model(*get_init_inputs())` called with `get_inputs()`, a candidate is `ModelNew` made alike.

As upstream: seed 42 before the arguments of `__init__` and before the model, which makes both have the same parameters
where they are created in the same order; model and inputs in one precision. Other than upstream, integers stay
integers, inputs are drawn on the device they are for, and so are parameters and running statistics that upstream leaves
at 1 or at 0: a kernel that ignores them is wrong.
"""

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from ksflow.evaluation.judge.elements import rms, strips
from ksflow.evaluation.sandbox.runners.device_mapping import seeded
from ksflow.evaluation.sandbox.runners.foreign import make
from ksflow.evaluation.sandbox.runners.pytree import Flat, Tree, build, flatten, pack
from ksflow.formats.runtime import ImportedReference, Params, SourceFiles, Task, as_tuple, selected_from
from ksflow.formats.sizes import resize_source
from ksflow.records import Json

SEED = 42
_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SHARE = 8  # an answer to other inputs is off by so many bounds, as a rule


class KernelBench(Task):
    """spec: `file`, `training`; `tolerance`: relative and absolute, and how far it may be narrowed where answers hardly
    differ from each other. Of a file: `precision`, and `sizes`: `formats.sizes.edits`, which a case's `cap` bounds. Of
    a deck, whose types are its own and whose weights are handed over: `constants`: a case's parameter -> the module's
    constant that it sets; `theirs`: the board's tolerances; `tolerance` and these by type; `forbidden`, `selects`.
    """

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        self._files, self._spec = files, spec
        self._source = (files.folder / spec["file"]).read_text(encoding="utf-8")
        self._dtype = _TYPES.get(spec.get("precision", ""))
        self.selects, self.forbidden = spec.get("selects", False), spec.get("forbidden", ())
        self._modules: dict[str, Any] = {}
        self._models: dict[tuple[str, str], tuple[Any, float]] = {}
        self._apart = math.inf

    def call_spec(self, params: Params) -> Json:
        return {
            "entry": "class:ModelNew" if self._dtype else "class:ModelNew,Model",
            "init": pack(self._init(params)),
            "seed": SEED,
            "spread": True,
            "dtype": str(self._dtype or "").removeprefix("torch."),
            "state": "" if self._dtype else "reference",
            "training": self._spec["training"],
        }

    def inputs(self, params: Params, seed: int) -> Tree:
        module = self._module(params)
        with torch.device("cuda"), mock.patch.object(torch, "manual_seed"):  # the judge's seed counts, not the file's
            drawn = tuple(module.get_inputs())
        shape, leaves = flatten(drawn)
        there = (leaf.detach().to("cuda") for leaf in leaves)
        return build(
            shape, [leaf.to(self._dtype or leaf.dtype) if leaf.is_floating_point() else leaf for leaf in there]
        )

    def answer(self, tree: Tree, params: Params) -> Tree:
        key = repr(sorted(params.items())), str(torch.empty(0, device="cuda").device)
        with torch.no_grad():
            if key not in self._models:
                self._models[key] = self._model(params)
            model, self._apart = self._models[key]
            return model(*tree)

    def tolerance(self, output: torch.Tensor) -> tuple[float | None, float | None]:
        """Of the case that was answered last: the usual one, unless answers to other inputs would come too close."""
        bounds = self._spec["tolerance"]
        if not self._dtype and (bounds := bounds.get(_name(output))) is None:
            return None, None
        usual, least = bounds
        bound = min(usual, max(least, self._apart))
        return bound, bound if self._dtype else bound * rms(output)

    def theirs(self, output: torch.Tensor) -> tuple[float, float]:
        """Upstream's (absolute, relative) tolerance of an output."""
        usual = self._spec["tolerance"][0] if self._dtype else 1e-4
        absolute, relative = self._spec.get("theirs", {}).get(_name(output), (usual, usual))
        return absolute, relative

    def _module(self, params: Params) -> Any:
        """The file with this case's sizes."""
        key = repr(sorted(params.items()))
        if key not in self._modules and self._dtype:
            cap = int(params["cap"])
            text, _ = resize_source(self._source, self._spec["sizes"], cap)
            (self._files.folder / f"model_{cap}.py").write_text(text, encoding="utf-8")
            self._modules[key] = self._files.load(f"model_{cap}.py")
        elif key not in self._modules:
            self._modules[key] = self._files.load(self._spec["file"])
            vars(self._modules[key]).update({self._spec["constants"][name]: value for name, value in params.items()})
        return self._modules[key]

    def _init(self, params: Params) -> list[Any]:
        seeded(SEED)
        return list(self._module(params).get_init_inputs())

    def _model(self, params: Params) -> tuple[Any, float]:
        """The model, and an eighth of how far apart its answers to two inputs are, at which the bound ends."""
        model = make(self._module(params).Model, self._init(params), SEED, "cuda", on=None if self._dtype else "cuda")
        model = model.to(self._dtype) if self._dtype else model
        if not self._spec["training"]:
            model.eval()
        answers = []
        for seed in (1, 2):
            seeded(seed)
            answers.append(flatten(model(*self.inputs(params, seed)))[1])
        apart = [
            distance / (rms(first) or rms(other)) / _SHARE
            for first, other in zip(*answers, strict=True)
            if (distance := rms(first, other)) > 0
        ]
        return model, float(min(apart, default=math.inf))


def _name(output: torch.Tensor) -> str:
    return str(output.dtype).removeprefix("torch.")


def upstream(reference: ImportedReference) -> Callable[[Flat, Any], str]:
    """Upstream's verdict: same shape and `allclose` to the model's own answer, whatever its size."""
    task = reference.task
    assert isinstance(task, KernelBench)

    def check(data: Flat, outputs: Any) -> str:
        got, want = as_tuple(outputs), as_tuple(reference.ref_kernel(data))
        source = selected_from(data, want) if task.selects else None
        if source is not None and got[-1].shape == want[-1].shape:  # indices by what they select
            got, want = (*got[:-1], source.gather(-1, got[-1].long())), (*want[:-1], want[-2])
        pairs = zip(got, want, strict=True)
        return next((words for mine, right in pairs if (words := _differs(mine, right, *task.theirs(right)))), "")

    return check


def _differs(got: torch.Tensor, want: torch.Tensor, absolute: float, relative: float) -> str:
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    bad, most = 0, 0.0
    for mine, theirs in strips(got, want):
        wide, exact = mine.double(), theirs.double()
        off = ~torch.isclose(wide, exact, rtol=relative, atol=absolute)
        if off.any():
            bad += int(off.sum())
            most = max(most, float((wide - exact).abs().nan_to_num(math.inf, posinf=math.inf).max()))
    return f"{bad} of {got.numel()} elements off by up to {most:.3g}" if bad else ""


create = KernelBench
