"""Random roundings: a function of torch operations runs in fp64, each result off by its type's rounding error."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_PRODUCTS = frozenset({"mm", "bmm", "convolution"})
_SUMS = frozenset({"sum", "mean", "var", "var_mean", "linalg_vector_norm"})


class Units(TorchDispatchMode):
    """Records half a unit of each operation's result type, when a function runs in its inputs' own types."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        kinds = [tensor.dtype for tensor in inputs if tensor.dtype.is_floating_point] or [torch.float32]
        units = [torch.finfo(kind).eps / 2 for kind in kinds]
        self.finest, self._coarsest = min(units), max(units)
        self.names: list[str] = []
        self._units: list[float] = []
        self._made = WeakTensorKeyDictionary()
        self.known = True
        """Whether the function does the same operations in fp64; else each operation has the coarsest input's unit."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        first = result[0] if isinstance(result, tuple | list) and result else result
        if not isinstance(first, torch.Tensor):
            return result
        unit = torch.finfo(first.dtype).eps / 2 if first.is_floating_point() else 0.0
        known = args and isinstance(args[0], torch.Tensor) and args[0] in self._made
        place = self._made[args[0]] if known else None
        if not _no_step(func):
            place = len(self.names)
            self.names.append(_name(func))
            self._units.append(unit)
        elif place is not None and unit > self._units[place] > 0:
            self._units[place] = unit  # a run in fp64 may skip the cast
        if place is not None:
            self._made[first] = place
        return result

    def unit(self, step: int) -> float:
        """Return the unit of an operation, by its index."""
        return self._units[step] or self.finest if self.known else self._coarsest


class Rounded(TorchDispatchMode):
    """Computes everything in fp64, with each result off by up to its unit, relatively and at random. units: None
    rounds nothing. allowed: the eps to which operands of products may be rounded, if coarser."""

    def __init__(self, units: Units | None, generator: torch.Generator, allowed: float = 0.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._units, self._generator, self._allowed = units, generator, allowed / 2
        self.names: list[str] = []
        self._inside = 0.0  # unit of the operation that is being decomposed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cast = (kwargs or {}).get("dtype")
        args, kwargs = tree_map(_widened, (args, kwargs or {}))
        name, terms, unit = _name(func), 1, self._inside
        if not unit and not _no_step(func):
            self.names.append(name)
            unit = self._units.unit(len(self.names) - 1) if self._units else 0.0
        elif not unit and self._units and cast is not None and cast.is_floating_point:
            unit = torch.finfo(cast).eps / 2
        if not self._units:
            return func(*args, **kwargs)
        if steps := _insides().get(func):
            outer, self._inside = self._inside, unit
            with self:
                result = steps(*args, **kwargs)
            self._inside = outer
            return result
        if name in _PRODUCTS:
            terms = args[1][0].numel() if name == "convolution" else args[0].shape[-1]
            off = max(unit, self._allowed)
            args = [*(self.round_tensor(tensor, off, terms) for tensor in args[:2]), *args[2:]]
        result = func(*args, **kwargs)
        if name in _SUMS:
            terms = args[0].numel() // max(result[0].numel() if isinstance(result, tuple) else result.numel(), 1)
        if _is_view(func):
            return result
        if any(value.alias_info for value in func._schema.returns):
            args[0].copy_(self.round_tensor(args[0], unit, terms))
            return result
        return tree_map(lambda tensor: self.round_tensor(tensor, unit, terms), result)

    def round_tensor(self, tensor: Any, unit: float, terms: int = 1) -> Any:
        """Return floats with random rounding errors of sums of so many terms; other values unchanged."""
        if not self._units or not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            return tensor
        off = unit * (max(math.sqrt(terms) / 4, 1) if unit <= torch.finfo(torch.float32).eps else 1)
        drawn = torch.rand(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=self._generator)
        return drawn.mul_(2 * off).add_(1 - off).mul_(tensor)


def _name(func: Any) -> str:
    return str(func._schema.name.removeprefix("aten::"))


def _no_step(func: Any) -> bool:
    """Return whether an operation is a view or a cast, which a run in other types may skip."""
    return _name(func) == "_to_copy" or _is_view(func)


def _is_view(func: Any) -> bool:
    kinds = [value.alias_info for value in func._schema.returns]
    return any(kind is not None and not kind.is_write for kind in kinds)


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


@functools.cache
def _insides() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions of operations that round on the way to their result."""
    aten = torch.ops.aten
    known = """_softmax _log_softmax gelu silu mish softplus elu hardswish addmm baddbmm native_layer_norm
    native_group_norm native_batch_norm _native_batch_norm_legit_no_training
    _scaled_dot_product_flash_attention_for_cpu"""
    return get_decompositions([getattr(aten, name) for name in known.split()])
