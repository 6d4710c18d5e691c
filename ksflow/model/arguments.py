"""Tensors within the tuples, lists and dicts that a module takes or returns, by names such as `pair.0`."""

from collections.abc import Mapping
from typing import Any

import torch


def apart(value: Any, name: str, found: dict[str, torch.Tensor]) -> Any:
    """A value with `{"tensor": NAME}` for tensors, which come into `found`, and `{"tuple": [...]}` for what holds them,
    as JSON has it; a value without tensors as it is. `installed.py` has the same."""
    if isinstance(value, torch.Tensor):
        found[name] = value
        return {"tensor": name}
    kind, inner = type(value), dict[str, torch.Tensor]()
    if kind is dict and all(isinstance(key, str) for key in value):
        rest: Any = {key: apart(part, f"{name}.{key}", inner) for key, part in value.items()}
    elif kind in (tuple, list):
        rest = [apart(part, f"{name}.{place}", inner) for place, part in enumerate(value)]
    else:
        return value
    found |= inner
    return {kind.__name__: rest} if inner else value


def together(shape: Any, parts: Mapping[str, Any]) -> Any:
    """What `apart` took apart, with other parts in the place of tensors and None for all that is none."""
    if not isinstance(shape, dict):
        return None
    ((kind, inner),) = shape.items()
    if kind == "tensor":
        return parts[inner]
    if kind == "dict":
        return {key: together(part, parts) for key, part in inner.items()}
    return (tuple if kind == "tuple" else list)(together(part, parts) for part in inner)


def others(shape: Any) -> list[Any]:
    """What is no tensor in what `apart` took apart."""
    if not isinstance(shape, dict):
        return [shape]
    ((kind, inner),) = shape.items()
    parts = () if kind == "tensor" else inner.values() if kind == "dict" else inner
    return [value for part in parts for value in others(part)]
