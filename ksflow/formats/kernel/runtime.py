"""A user's own reference. Its `check_implementation(data, output)` or `oracle(data)` decides what is right, if it has
one; else what is right follows from the outputs' number formats.
"""

import torch

from ksflow.evaluation.judge.tolerance import expected, first_error
from ksflow.evaluation.sandbox.runners.pytree import Tree, flatten
from ksflow.formats.gpumode.runtime import GpuMode
from ksflow.formats.kernel.arrays import as_arrays, as_tensors
from ksflow.formats.runtime import Params, SourceFiles, accepts
from ksflow.records import Json

_CHECK = {"c1": 8.0, "accumulate": "float32"}


class UserReference(GpuMode):
    """spec: `reference`, the file; `rtol` and `atol`, or None; `check`, the function that decides, if there is one;
    `numpy`: whether the file's functions take and return arrays."""

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        super().__init__(files, spec)
        self._spec = spec
        self.own_check = "check" in spec
        self._own, self._ours = (as_arrays, as_tensors) if spec.get("numpy") else (lambda tree: tree, lambda tree: tree)

    def inputs(self, params: Params, seed: int) -> Tree:
        if not accepts(self.module.generate_input, "device"):
            return self._ours(super().inputs(params, seed))
        device = "cuda" if torch.cuda.is_available() else "cpu"  # cuda means the judge's device
        return self._ours(super().inputs({**params, "device": device}, seed))

    def answer(self, tree: Tree, params: Params) -> Tree:
        return self._ours(super().answer(self._own(tree), params))

    def objection(self, tree: Tree, outputs: Tree, params: Params) -> str:
        """By the reference's own check, else by the bound that its oracle's rows make."""
        if self._spec["check"] == "check_implementation":
            return super().objection(self._own(tree), self._own(outputs), params)
        rows = self._ours(self.module.oracle(self._own(tree)))
        rows = rows if isinstance(rows, list | tuple) else [rows]
        got: list[torch.Tensor] = flatten(outputs)[1]
        for row, out in zip(rows, got, strict=True):
            if at := first_error(expected(row, out, _CHECK), out):
                first = f"first at {at['index']}: {at['got']} for {at['expected']}"
                return f"{at['bad']} of {at['of']} elements are off, {first}"
        return ""

    def tolerance(self, output: torch.Tensor) -> tuple[float | None, float | None]:
        """As given."""
        return self._spec["rtol"], self._spec["atol"]


create = UserReference
