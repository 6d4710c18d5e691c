"""Tensors within the tuples, lists and dicts that a module takes or returns, by names such as `pair.0`."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map


def apart(value: Any, name: str, found: dict[str, torch.Tensor]) -> Any:
    """Return a value as JSON holds it: `{"tensor": NAME}` for a tensor, which is added to `found`; `{"tuple": [...]}`
    for a tuple with tensors; `{"plain": VALUE}` for a dict without tensors; another value without tensors unchanged.
    `installed.py` has a copy of this function."""
    if isinstance(value, torch.Tensor):
        found[name] = value
        return {"tensor": name}
    kind, inner = type(value), dict[str, torch.Tensor]()
    if kind is dict and all(isinstance(key, str) for key in value):
        rest: Any = {key: apart(part, f"{name}.{key}", inner) for key, part in value.items()}
    elif kind in (tuple, list):
        rest = [apart(part, f"{name}.{index}", inner) for index, part in enumerate(value)]
    else:
        return value
    found |= inner
    return {kind.__name__: rest} if inner else {"plain": value} if kind is dict else value


def together(shape: Any, parts: Mapping[str, Any]) -> Any:
    """Return the tuples, lists and dicts that `apart` described, with `parts` for tensors and None for other values."""
    if type(shape) is not dict:
        return tree_map(lambda _: None, shape)
    ((kind, inner),) = shape.items()
    if kind == "plain":
        return tree_map(lambda _: None, inner)
    if kind == "tensor":
        return parts[inner]
    if kind == "dict":
        return {key: together(part, parts) for key, part in inner.items()}
    return (tuple if kind == "tuple" else list)(together(part, parts) for part in inner)


def others(shape: Any) -> list[Any]:
    """Return the values without tensors in what `apart` returned."""
    if type(shape) is not dict:
        return [shape]
    ((kind, inner),) = shape.items()
    if kind == "plain":
        return list(inner.values())
    parts = () if kind == "tensor" else inner.values() if kind == "dict" else inner
    return [value for part in parts for value in others(part)]
