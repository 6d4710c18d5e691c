"""Arguments of any structure as flat tensors, for functions of other projects.

A tree is a tensor, a list, a tuple, a named tuple, a dict or a dataclass of trees. Any other value is a constant, which
the judge pickles and the sandbox unpickles, never the other way round.
"""

import base64
import collections
import dataclasses
import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Tree = Any
HIDDEN = "__only_the_judge_has_it__"  # attribute of modules that candidates cannot import
Tensors = tuple[torch.Tensor, ...]


class Flat(tuple[torch.Tensor, ...]):
    """A case's tensors, inputs first, with the calling convention of a candidate.

    binding: `tree` (packed); `order`: for each tensor of the tree its index here; `inout`: pairs of indices, of which
    the judge copies the first into the second before a call; `results`: the indices of the returned tensors, in order;
    `entry`, `init`, `seed`, `device`: see `foreign`.
    """

    binding: Mapping[str, Any]

    def __new__(cls, tensors: Sequence[torch.Tensor], binding: Mapping[str, Any]) -> "Flat":
        flat = super().__new__(cls, tensors)
        flat.binding = binding
        return flat


def replace_tensors(data: Tensors, tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return other tensors of the same case, with its binding."""
    return Flat(tensors, data.binding) if isinstance(data, Flat) else tuple(tensors)


@dataclasses.dataclass(frozen=True)
class TensorLeaf:
    """The place of a tensor in a tree."""

    index: int


def flatten(tree: Tree) -> tuple[Tree, list[torch.Tensor]]:
    """Return the tree with `TensorLeaf`s in place of the tensors, and the tensors."""
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> TensorLeaf:
        tensors.append(tensor)
        return TensorLeaf(len(tensors) - 1)

    return _map(tree, torch.Tensor, take), tensors


def check_portable(tree: Tree) -> Tree:
    """Return the tree. Raises TypeError if it contains a module, whose state cannot be seen."""

    def refuse(module: torch.nn.Module) -> None:
        kind = type(module).__name__
        raise TypeError(f"{kind} is a torch.nn.Module; only tensors and plain values go in and out of a sandbox")

    _map(tree, torch.nn.Module, refuse)
    return tree


def build(shape: Tree, tensors: Sequence[torch.Tensor]) -> Tree:
    """Return the tree of a shape, as `flatten` returns it, with these tensors."""
    return _map(shape, TensorLeaf, lambda leaf: tensors[leaf.index])


def flatten_result(result: Tree) -> list[Any]:
    """Return a call's result as a flat list of tensors and numbers."""
    if isinstance(result, torch.Tensor | bool | int | float):
        return [result]
    if isinstance(result, Mapping):
        return [leaf for value in result.values() for leaf in flatten_result(value)]
    if isinstance(result, list | tuple):
        return [leaf for value in result for leaf in flatten_result(value)]
    return []


def ordered(result: Tree, like: Tree) -> Tree:
    """Return the result with its dicts in the order of those of `like`. Raises KeyError if their keys differ."""
    if isinstance(result, Mapping) and isinstance(like, Mapping):
        if {*result} != {*like}:
            raise KeyError(f"with {', '.join(map(repr, result))}, expected {', '.join(map(repr, like))}")
        return {name: ordered(result[name], shape) for name, shape in like.items()}
    if isinstance(result, list | tuple) and isinstance(like, list | tuple) and len(result) == len(like):
        return [ordered(value, shape) for value, shape in zip(result, like, strict=True)]
    return result


def pack(shape: Tree) -> str:
    """Return a tree without tensors as text for the sandbox. Classes that only the judge has become plain ones."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(shape)
    return base64.b64encode(buffer.getvalue()).decode()


class _Pickler(pickle.Pickler):
    """Pickles objects of a module marked `HIDDEN` with their attributes, without their class."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if not getattr(sys.modules.get(kind.__module__), HIDDEN, False):
            return NotImplemented
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return _named, (kind.__name__, value._fields, tuple(value))
        return types.SimpleNamespace, (), dict(vars(value))


def _named(name: str, fields: Sequence[str], values: tuple[Any, ...]) -> Any:
    return collections.namedtuple(name, fields)(*values)


def unpack(text: str) -> Tree:
    """Return the tree that the judge packed."""
    return pickle.loads(base64.b64decode(text))


def _map(tree: Tree, kind: type, change: Callable[[Any], Any]) -> Tree:
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, Mapping):
        mapping = {key: _map(value, kind, change) for key, value in tree.items()}
        return mapping if type(tree) is dict else type(tree)(mapping)  # type: ignore[call-arg]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(value, kind, change) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(_map(value, kind, change) for value in tree)
    if isinstance(tree, types.SimpleNamespace):
        return types.SimpleNamespace(**{name: _map(value, kind, change) for name, value in vars(tree).items()})
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type | TensorLeaf):
        names = [field.name for field in dataclasses.fields(tree) if field.init]
        return dataclasses.replace(tree, **{name: _map(getattr(tree, name), kind, change) for name in names})
    return tree
