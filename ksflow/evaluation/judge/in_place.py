"""Arguments that a kernel changes in place: one tensor for a kernel, two for the judge."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.sandbox.runners.torch_kernel import returned_beside


class InPlace:
    """The roles of a problem's arguments, some of which a kernel changes in place (`role: inout`).

    The judge holds two tensors for each of those: the initial contents, among the inputs, and the changed ones, among
    the outputs. So every problem is a function from inputs to outputs for the code that checks it. The functions of a
    `reference.py` get the tensors in the order of `args`, with copies of those that are changed in place.

    order: for each argument the index, in the judge's tensors, of the tensor that a kernel gets. pairs: for each
    argument that is changed in place the indices of its initial and of its changed contents.
    """

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._inputs = [arg for arg, role in enumerate(roles) if role != "out"]
        self._outputs = [arg for arg, role in enumerate(roles) if role != "in"]
        self._before = {arg: index for index, arg in enumerate(self._inputs)}
        after = {arg: len(self._inputs) + index for index, arg in enumerate(self._outputs)}
        self.pairs = tuple((self._before[arg], after[arg]) for arg, role in enumerate(roles) if role == "inout")
        self.order = tuple(after.get(arg, self._before.get(arg, 0)) for arg in range(len(roles)))

    def apart(self, given: Any) -> Tensors:
        """Return the judge's tensors for those of `generate_input`, unchanged if their number is wrong."""
        if not isinstance(given, tuple) or len(given) != len(self._roles):
            return given  # type: ignore[no-any-return]  # `problem check` says what is wrong
        after = (_like(given[arg]) if self._roles[arg] == "inout" else given[arg] for arg in self._outputs)
        return (*(given[arg] for arg in self._inputs), *after)

    def given(self, data: Tensors) -> Tensors:
        """Return the tensors in the order of `args`, with copies of those that are changed in place."""
        if not self.pairs or len(data) != len(self._inputs) + len(self._outputs):
            return data
        before = {target: data[place] for place, target in self.pairs}
        return tuple(
            _like(before[place]).copy_(before[place]) if place in before else data[place] for place in self.order
        )

    def answered(self, kernel: Callable[[Tensors], Any]) -> Callable[[Tensors], Tensors]:
        """Return a function that calls `ref_kernel` and returns every output: what it changed and what it returned."""

        def answer(data: Tensors) -> Tensors:
            given = self.given(data)
            changed = [given[arg] for arg, role in enumerate(self._roles) if role == "inout"]
            result = iter(returned := returned_beside(kernel(given), changed))
            if len(returned) != self._roles.count("out"):
                raise ValueError(
                    f"ref_kernel returns {len(returned)} tensors beside what it changes in place, args declares "
                    f"{self._roles.count('out')} of role out"
                )
            return tuple(given[arg] if self._roles[arg] == "inout" else next(result) for arg in self._outputs)

        return answer

    def asked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls an `oracle` or a check on the tensors as they are before a call."""
        return lambda data, *outputs: function(self.given(data), *outputs)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Return zeros with a tensor's strides, gaps included."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).zero_()
