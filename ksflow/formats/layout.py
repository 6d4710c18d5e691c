"""How a call's tensors lie: what the reference returns, writes, reads and leaves alone, found by running it."""

from collections.abc import Callable, Collection, Mapping

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.elements import bits, is_constant, same_bits
from ksflow.evaluation.sandbox.runners.pytree import TensorLeaf, Tree, flatten_result, pack
from ksflow.records import Json

_POISON = (0x00, 0x5A)  # what is in a tensor before the reference runs, to see whether it reads that


class CallLayout:
    """One case's call.

    kept: places of the arguments that are inputs. outputs: tensors like those a candidate makes: the arguments that are
    written first, then what is returned besides.
    """

    def __init__(
        self, answer: Callable[[list[torch.Tensor]], Tree], leaves: list[torch.Tensor], anew: list[torch.Tensor]
    ) -> None:
        """answer: the reference, on the arguments' tensors, which it may change. anew: the same, made again."""
        self._answer, self._leaves = answer, leaves
        self._before = [leaf.clone() for leaf in leaves]
        self.result = answer(leaves)
        self._returned = [torch.as_tensor(leaf) for leaf in flatten_result(self.result)]
        self._alias: dict[int, int] = {}  # of an argument that is returned: its place among the results
        for place, out in enumerate(self._returned):
            for index, leaf in enumerate(leaves):
                if out is leaf or (out.numel() and out.data_ptr() == leaf.data_ptr() and out.shape == leaf.shape):
                    self._alias[index] = place
                    break
        changed = [index for index, leaf in enumerate(leaves) if not same_bits(leaf, self._before[index])]
        self._alias |= self._spare(changed, anew)
        written = sorted({*changed, *self._alias})
        self._read = [index for index in written if self._reads(index, written)]
        self.inputs = [index for index in range(len(leaves)) if index not in written or index in self._read]
        self._own = {index: len(self.inputs) + place for place, index in enumerate(written)}
        sources = {place: index for index, place in reversed(self._alias.items())}
        besides = [place for place in range(len(self._returned)) if place not in sources]
        self.outputs = [*(leaves[index] for index in written), *(self._returned[place] for place in besides)]
        places = {place: self._own[index] for place, index in sources.items()}
        places |= {place: len(self.inputs) + len(written) + number for number, place in enumerate(besides)}
        self.results = [places[place] for place in range(len(self._returned))]

    def binding(self) -> Json:
        """How a candidate is called on them: see `sandbox.tree.Flat`."""
        places = {index: position for position, index in enumerate(self.inputs)}
        first, count = len(self.inputs), len(self.outputs)
        return {
            "order": [self._own.get(index, places.get(index, -1)) for index in range(len(self._leaves))],
            "inout": [[places[index], self._own[index]] for index in self._read],
            "results": self.results,
            "types": [str(out.dtype).removeprefix("torch.") for out in self._returned],
            "outputs": list(range(first, first + count)),
            "result_tree": pack(_result_shape(self.result, self.results, first, count)),
        }

    def _spare(self, changed: Collection[int], anew: list[torch.Tensor]) -> dict[int, int]:
        """Empty arguments made for results that the reference returns elsewhere: candidates may write there."""
        spares: dict[int, int] = {}
        loose = [
            index
            for index, leaf in enumerate(self._before)
            if index not in changed
            and index not in self._alias
            and not (same_bits(leaf, anew[index]) and leaf.numel() and not is_constant(leaf))
        ]
        for position, out in enumerate(self._returned):
            if position in self._alias.values():
                continue
            for index in loose:
                spare = self._before[index]  # a reference may return a wider type than the place made for it has
                floats = spare.dtype.is_floating_point and out.dtype.is_floating_point
                fits = index not in spares and spare.shape == out.shape and (spare.dtype == out.dtype or floats)
                if fits and not self._reads(index, changed):
                    spares[index] = position
                    break
        return spares

    def _reads(self, index: int, among: Collection[int]) -> bool:
        """Whether what is in a tensor before the call bears on what is returned, or on those that are written."""
        results = [*self._returned, *(self._leaves[place] for place in among)]
        for byte in _POISON:
            contents = [leaf.clone() for leaf in self._before]
            poisoned = contents[index]
            poisoned.copy_(torch.full_like(bits(poisoned), byte).view(poisoned.dtype).reshape(poisoned.shape))
            with catch_foreign() as caught:
                answers = [torch.as_tensor(leaf) for leaf in flatten_result(self._answer(contents))]
            if caught:  # whatever it says of such contents, it read them
                return True
            again = [*answers, *(contents[place] for place in among)]
            if any(not same_bits(before, after) for before, after in zip(results, again, strict=True)):
                return True
        return False


def _result_shape(result: Tree, places: list[int], first: int, count: int) -> Tree:
    """The result's tree with the outputs' places; where nothing is returned, the outputs that were written."""
    if not places:
        written = [TensorLeaf(index) for index in range(count)]
        return written[0] if count == 1 else tuple(written)
    left = iter(places)

    def put(tree: Tree) -> Tree:
        if isinstance(tree, torch.Tensor | bool | int | float):
            return TensorLeaf(next(left) - first)
        if isinstance(tree, Mapping):
            return {key: put(value) for key, value in tree.items()}
        if isinstance(tree, tuple):
            items = [put(value) for value in tree]
            return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)  # torch's own kinds, too
        if isinstance(tree, list):
            return [put(value) for value in tree]
        return tree

    return put(result)
