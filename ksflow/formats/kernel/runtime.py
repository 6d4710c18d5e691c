"""A user's own reference without a check of its own: what is right follows from the outputs' number formats."""

import torch

from ksflow.formats.runtime import Files, Json, Params, accepts
from ksflow.sandbox.tree import Tree

OWN_CHECK = False
_STEPS = 8.0
"""Roundings of the number format that an element may be off by."""
_LEAST = 1e-4
"""Sums in another order differ by more than their format's step."""


class Kernel:
    """spec: `reference`, the file; `rtol` and `atol`, or None."""

    def __init__(self, files: Files, spec: Json) -> None:
        self.module = files.load(spec["reference"])
        self._spec = spec

    def calling(self, params: Params) -> Json:
        return {"entry": "custom_kernel"}

    def inputs(self, params: Params, seed: int) -> Tree:
        generate = self.module.generate_input
        there = {"device": "cuda"} if accepts(generate, "device") else {}  # which means the judge's device
        there = there if torch.cuda.is_available() else dict.fromkeys(there, "cpu")
        return generate(**params, **there, **({"seed": seed} if accepts(generate, "seed") else {}))

    def answer(self, tree: Tree, params: Params) -> Tree:
        return self.module.ref_kernel(tree)

    def objection(self, tree: Tree, outputs: Tree) -> str | None:
        return None

    def tolerance(self, output: torch.Tensor) -> tuple[float, float]:
        """As given, else some steps of the format."""
        least = _LEAST if output.dtype is not torch.float64 else 0.0
        usual = max(_STEPS * torch.finfo(output.dtype).eps, least)
        rtol, atol = self._spec["rtol"], self._spec["atol"]
        return (usual if rtol is None else rtol), (usual if atol is None else atol)


task = Kernel
