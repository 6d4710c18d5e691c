"""A user's own reference. Its `check_implementation(data, output)` or `oracle(data)` decides what is right, if it has
one; else what is right follows from the outputs' number formats.
"""

import torch

from ksflow.formats.gpumode.runtime import GpuMode
from ksflow.formats.kernel.arrays import as_arrays, as_tensors
from ksflow.formats.runtime import Json, Params, SourceFiles, accepts
from ksflow.judge.tolerance import expected, first_error
from ksflow.sandbox.runners.pytree import Tree, flatten

_CHECK = {"c1": 8.0, "accumulate": "float32"}
_STEPS = 8.0
"""Roundings of the number format that an element may be off by."""
_LEAST, _LEAST_64 = 1e-4, 2e-13
"""Sums in another order differ by more than their format's step: some 800 of float32's, and of float64's."""


class UserReference(GpuMode):
    """spec: `reference`, the file; `rtol` and `atol`, or None; `check`, the function that decides, if there is one;
    `numpy`: whether the file's functions take and return arrays."""

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        super().__init__(files, spec)
        self._spec = spec
        self.own_check = "check" in spec
        self._own, self._ours = (as_arrays, as_tensors) if spec.get("numpy") else (_as_it_is, _as_it_is)
        """A tree as the file's functions have it, and as the judge has it."""

    def inputs(self, params: Params, seed: int) -> Tree:
        if not accepts(self.module.generate_input, "device"):
            return self._ours(super().inputs(params, seed))
        device = "cuda" if torch.cuda.is_available() else "cpu"  # cuda means the judge's device
        return self._ours(super().inputs({**params, "device": device}, seed))

    def answer(self, tree: Tree, params: Params) -> Tree:
        return self._ours(super().answer(self._own(tree), params))

    def objection(self, tree: Tree, outputs: Tree) -> str:
        """By the reference's own check, else by the bound that its oracle's rows make."""
        if self._spec["check"] == "check_implementation":
            return super().objection(self._own(tree), self._own(outputs))
        rows = self._ours(self.module.oracle(self._own(tree)))
        rows = rows if isinstance(rows, list | tuple) else [rows]
        got: list[torch.Tensor] = flatten(outputs)[1]
        for row, out in zip(rows, got, strict=True):
            if at := first_error(expected(row, out, _CHECK), out):
                first = f"first at {at['index']}: {at['got']} for {at['expected']}"
                return f"{at['bad']} of {at['of']} elements are off, {first}"
        return ""

    def tolerance(self, output: torch.Tensor) -> tuple[float, float]:
        """As given, else some steps of the format."""
        least = _LEAST if output.dtype is not torch.float64 else _LEAST_64
        usual = max(_STEPS * torch.finfo(output.dtype).eps, least)
        rtol, atol = self._spec["rtol"], self._spec["atol"]
        return (usual if rtol is None else rtol), (usual if atol is None else atol)


def _as_it_is(tree: Tree) -> Tree:
    return tree


create = UserReference
