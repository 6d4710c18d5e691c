"""KernelBench's files: `Model(*get_init_inputs())` called with `get_inputs()`, a candidate is `ModelNew` made alike.

As upstream: seed 42 before the arguments of `__init__` and before the model, which makes both have the same parameters
where they are created in the same order; model and inputs in one precision. Other than upstream, integers stay
integers, inputs are drawn on the device they are for, and so are parameters and running statistics that upstream leaves
at 1 or at 0: a kernel that ignores them is wrong.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from ksflow.evaluation.judge.tolerance import rms, strips
from ksflow.evaluation.sandbox.runners.device_mapping import seeded
from ksflow.evaluation.sandbox.runners.foreign import draw_constants
from ksflow.evaluation.sandbox.runners.pytree import Flat, Tree, build, flatten, pack
from ksflow.formats.runtime import ImportedReference, Json, Params, SourceFiles, Task, as_tuple
from ksflow.formats.sizes import resize_source

SEED = 42
_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SHARE = 8
"""An answer to other inputs is off by so many bounds, as a rule."""


class KernelBench(Task):
    """spec: `file`, `precision`, `training`; `tolerance`: upstream's, relative and absolute, and how far it may be
    narrowed where answers hardly differ from each other; `sizes`: `formats.sizes.edits`, which a case's `cap` bounds.
    """

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        self._files, self._spec = files, spec
        self._source = (files.folder / spec["file"]).read_text(encoding="utf-8")
        self._dtype = _TYPES[spec["precision"]]
        self._modules: dict[int, Any] = {}
        self._models: dict[tuple[int, str], tuple[Any, float]] = {}
        self.usual, self._least = spec["tolerance"]
        self._bound = self.usual

    def call_spec(self, params: Params) -> Json:
        return {
            "entry": "class:ModelNew",
            "init": pack(self._init(params)),
            "seed": SEED,
            "spread": True,
            "dtype": str(self._dtype).removeprefix("torch."),
            "training": self._spec["training"],
        }

    def inputs(self, params: Params, seed: int) -> Tree:
        with torch.device("cuda"):
            drawn = tuple(self._module(params).get_inputs())
        shape, leaves = flatten(drawn)
        there = (leaf.detach().to("cuda") for leaf in leaves)
        return build(shape, [leaf.to(self._dtype) if leaf.is_floating_point() else leaf for leaf in there])

    def answer(self, tree: Tree, params: Params) -> Tree:
        key = int(params["cap"]), str(torch.empty(0, device="cuda").device)
        with torch.no_grad():
            if key not in self._models:
                self._models[key] = self._model(params)
            model, self._bound = self._models[key]
            return model(*tree)

    def tolerance(self, output: torch.Tensor) -> tuple[float, float]:
        """Of the case that was answered last."""
        return self._bound, self._bound

    def _module(self, params: Params) -> Any:
        """The file with this case's sizes."""
        cap = int(params["cap"])
        if cap not in self._modules:
            name = f"model_{cap}.py"
            text = resize_source(self._source, self._spec["sizes"], cap)
            (self._files.folder / name).write_text(text, encoding="utf-8")
            self._modules[cap] = self._files.load(name)
        return self._modules[cap]

    def _init(self, params: Params) -> list[Any]:
        seeded(SEED)
        return list(self._module(params).get_init_inputs())

    def _model(self, params: Params) -> tuple[Any, float]:
        """The model, its parameters drawn on the CPU as a candidate's are, and the case's bound: upstream's, unless the
        answer to other inputs would come too close to it.
        """
        arguments = self._init(params)
        seeded(SEED)
        model = draw_constants(self._module(params).Model(*arguments)).to("cuda").to(self._dtype)
        if not self._spec["training"]:
            model.eval()
        answers = []
        for seed in (1, 2):
            seeded(seed)
            answers.append(flatten(model(*self.inputs(params, seed)))[1])
        bounds = [self.usual]
        for first, other in zip(*answers, strict=True):
            if (apart := rms(first, other)) > 0:
                bounds.append(max(self._least, apart / (rms(first) or rms(other)) / _SHARE))
        return model, float(min(bounds))


def upstream(reference: ImportedReference) -> Callable[[Flat, Any], str]:
    """Upstream's verdict: same shape and `allclose` to the model's own answer, whatever its size."""
    task = reference.task
    assert isinstance(task, KernelBench)

    def check(data: Flat, outputs: Any) -> str:
        answer = reference.ref_kernel(data)
        pairs = zip(as_tuple(outputs), as_tuple(answer), strict=True)
        return next((difference for got, want in pairs if (difference := _differs(got, want, task.usual))), "")

    return check


def _differs(got: torch.Tensor, want: torch.Tensor, bound: float) -> str:
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    bad, most = 0, 0.0
    for mine, theirs in strips(got, want):
        wide, exact = mine.double(), theirs.double()
        off = ~torch.isclose(wide, exact, rtol=bound, atol=bound)
        if off.any():
            bad += int(off.sum())
            most = max(most, float((wide - exact).abs().nan_to_num(math.inf, posinf=math.inf).max()))
    return f"{bad} of {got.numel()} elements off by up to {most:.3g}" if bad else ""


create = KernelBench
