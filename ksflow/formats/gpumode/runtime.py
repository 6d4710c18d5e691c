"""GPU MODE's tasks: `generate_input(**case)`, `ref_kernel(data)`, `check_implementation(data, output)`."""

from typing import Any

import numpy as np
import torch

from ksflow.evaluation.sandbox.runners.pytree import Tree
from ksflow.formats.runtime import Params, SourceFiles, Task, accepts
from ksflow.records import Json


class GpuMode(Task):
    """spec: `reference`, the file that defines the three."""

    own_check = True

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        self.module = files.load(spec["reference"])

    def inputs(self, params: Params, seed: int) -> Tree:
        generate = self.module.generate_input
        return generate(**params, **({"seed": seed} if accepts(generate, "seed") else {}))

    def answer(self, tree: Tree, params: Params) -> Tree:
        return self.module.ref_kernel(tree)

    def objection(self, tree: Tree, outputs: Tree, params: Params) -> str:
        """The check may answer with words, with whether it passed, or with both."""
        verdict: Any = self.module.check_implementation(tree, outputs)
        if isinstance(verdict, bool | torch.Tensor | np.bool_):
            verdict = (bool(verdict),)
        if isinstance(verdict, tuple | list):
            return "" if verdict[0] else " ".join(map(str, verdict[1:])).strip() or "check_implementation says no"
        return str(verdict or "")


create = GpuMode
