"""A user's own reference with `check_implementation(data, output)`, or with the `oracle(data)` of a problem folder."""

from typing import Any

import torch

from ksflow.formats.kernel import runtime
from ksflow.judge.tolerance import compare, expected
from ksflow.sandbox.tree import Tree, flatten

OWN_CHECK = True
_CHECK = {"c1": 8.0, "accumulate": "float32"}


class Checked(runtime.Kernel):
    """The same, and its word counts."""

    def objection(self, tree: Tree, outputs: Tree) -> str:
        if not hasattr(self.module, "check_implementation"):
            return self._beyond(tree, outputs)
        found: Any = self.module.check_implementation(tree, outputs)
        if isinstance(found, tuple | list):
            return "" if found[0] else " ".join(map(str, found[1:])).strip() or "check_implementation says no"
        if isinstance(found, bool):
            return "" if found else "check_implementation says no"
        return str(found or "")

    def _beyond(self, tree: Tree, outputs: Tree) -> str:
        """By the bound that the oracle's rows make."""
        rows = self.module.oracle(tree)
        rows = rows if isinstance(rows, list | tuple) else [rows]
        got: list[torch.Tensor] = flatten(outputs)[1]
        for row, out in zip(rows, got, strict=True):
            finding = compare(expected(row, out, _CHECK), out)
            if not finding.right:
                at = finding.detail
                first = f"first at {at['index']}: {at['got']} for {at['expected']}"
                return f"{at['bad']} of {at['of']} elements are off, {first}"
        return ""


task = Checked
