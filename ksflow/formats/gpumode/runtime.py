"""GPU MODE's tasks: `generate_input(**case)`, `ref_kernel(data)`, `check_implementation(data, output)`."""

from typing import Any

import torch

from ksflow.formats.runtime import Files, Json, Params, accepts
from ksflow.sandbox.tree import Tree

OWN_CHECK = True


class GpuMode:
    """spec: `reference`, the file that defines the three."""

    def __init__(self, files: Files, spec: Json) -> None:
        self._module = files.load(spec["reference"])

    def calling(self, params: Params) -> Json:
        return {"entry": "custom_kernel"}

    def inputs(self, params: Params, seed: int) -> Tree:
        generate = self._module.generate_input
        return generate(**params, **({"seed": seed} if accepts(generate, "seed") else {}))

    def answer(self, tree: Tree, params: Params) -> Tree:
        return self._module.ref_kernel(tree)

    def objection(self, tree: Tree, outputs: Tree) -> str:
        """The check may answer with words, with whether it passed, or with both."""
        found: Any = self._module.check_implementation(tree, outputs)
        if isinstance(found, tuple | list):
            passed, words = found[0], " ".join(map(str, found[1:])).strip()
            return "" if passed else words or "check_implementation says no"
        if isinstance(found, bool):
            return "" if found else "check_implementation says no"
        return str(found or "")

    def tolerance(self, output: torch.Tensor) -> tuple[float, float]:
        raise NotImplementedError  # it has a check of its own


task = GpuMode
