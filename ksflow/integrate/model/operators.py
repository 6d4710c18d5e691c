"""A kernel as an operator of torch. Packages of `model apply` and patches have this text: it imports torch alone."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

_ALIGNED = 64
"""Bytes: how inputs lie where a kernel is judged. What lies otherwise, as some views do, is copied for it."""


class Operator:
    """`torch.ops.SPACE.NAME`, for calls like those that a kernel was judged on.

    cases: of each judged call sizes, strides and type of each tensor that it takes, and of each that it makes. changed:
    places of the tensors that it changes in place. kernel: returns the kernel, a function of all these tensors.
    """

    def __init__(
        self,
        path: tuple[str, str],
        cases: Sequence[Any],
        changed: Sequence[int],
        device: str,
        kernel: Callable[[], Callable[..., Any]],
    ) -> None:
        space, name = path
        self._changed, self._device, self._kernel = changed, device, kernel
        self._cases = [
            [[(tuple(size), tuple(steps), getattr(torch, kind)) for size, steps, kind in rows] for rows in case]
            for case in cases
        ]
        taken, made = map(len, self._cases[0])
        words = [f"Tensor(a{at}!) x{at}" if at in changed else f"Tensor x{at}" for at in range(taken)]
        answer = "Tensor" if made == 1 else f"({', '.join(['Tensor'] * made)})"
        library: Any = torch.library.Library(space, "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(f"{name}({', '.join(words)}, int ksflow_case) -> {answer}")
        library.impl(name, self._run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{space}::{name}", self._made, lib=library)
        self._library = library  # while it lives, the operator is known
        self.call = getattr(getattr(torch.ops, space), name).default
        """Takes the tensors, and the case's number; returns what the kernel makes."""

    def case(self, tensors: Sequence[Any]) -> tuple[str, int]:
        """Why the kernel is not for these tensors, or nothing; and which of the judged cases they are."""
        if not all(isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided for tensor in tensors):
            return "arguments", 0
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return "grad", 0
        if torch.is_autocast_enabled(self._device):
            return "autocast", 0
        if not all(tensor.device.type == self._device and tensor.device == tensors[0].device for tensor in tensors):
            return "device", 0
        if self._changed and not torch.compiler.is_compiling():
            memory = [tensor.untyped_storage().data_ptr() for tensor in tensors]
            if any(memory.count(memory[place]) > 1 for place in self._changed):
                return "arguments", 0
        reason = "shape"
        for number, (inputs, _) in enumerate(self._cases):
            pairs = list(zip(tensors, inputs, strict=True))
            if all(tensor.shape == size for tensor, (size, _, _) in pairs):
                if not all(tensor.dtype == kind for tensor, (_, _, kind) in pairs):
                    reason = "dtype"
                elif all(
                    size == 1 or own == step
                    for tensor, (_, steps, _) in pairs
                    for size, own, step in zip(tensor.shape, tensor.stride(), steps, strict=True)
                ):
                    return "", number
                else:
                    reason = "layout"
        return reason, 0

    def _made(self, *args: Any) -> Any:
        """What the kernel makes, without contents."""
        rows, device = self._cases[args[-1]][1], args[0].device
        made = [torch.empty_strided(size, steps, dtype=kind, device=device) for size, steps, kind in rows]
        return (made[0] if len(made) == 1 else tuple(made)) if made else None

    def _run(self, *args: Any) -> Any:
        """What the kernel makes. A compiled model relies on the strides of `_made`, and on outputs that are no views of
        inputs."""
        tensors, made = args[:-1], self._made(*args)
        buffers = [one for one in (made if isinstance(made, tuple) else (made,)) if one is not None]
        data = [tensor if tensor.data_ptr() % _ALIGNED == 0 else _aligned(tensor) for tensor in tensors]
        with torch.cuda.device_of(tensors[0]):  # type: ignore[no-untyped-call]
            results = self._kernel()((*data, *buffers))
        results = results if isinstance(results, list | tuple) else (results,)
        changed = [data[place] for place in self._changed]
        results = [one for one in results if one is not None and not any(one is own for own in changed)]
        for place in self._changed:
            if data[place] is not tensors[place]:
                tensors[place].copy_(data[place])
            elif not data[place].is_inference():
                torch.autograd.graph.increment_version(data[place])
        held = {tensor.untyped_storage().data_ptr() for tensor in data}
        pairs = [
            out if out.stride() == own.stride() and out.untyped_storage().data_ptr() not in held else own.copy_(out)
            for own, out in zip(buffers, results, strict=True)
        ]
        return (pairs[0] if len(pairs) == 1 else tuple(pairs)) if pairs else None


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides; `clone` closes gaps."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)
