"""Tensors within what a module takes or returns, by names such as `pair.0`: within tuples, lists, dicts and objects.

`model apply` copies this file beside `installed.py`: it imports torch and the standard library alone.
"""

import importlib
import json
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import torch

_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format, type, Enum)
_DEEP = 8
"""Levels of objects within objects; what is deeper, such as an object that contains itself, is not looked into."""


def parts_of(value: Any) -> dict[str, Any] | None:
    """Return the values that a tuple, a list, a dict or an object is made of, by name; None for any other value."""
    kind: Any = type(value)
    if isinstance(value, tuple | list):
        return {str(index): part for index, part in enumerate(value)}
    if is_dataclass(kind):
        own = fields(value)
        return {field.name: getattr(value, field.name) for field in own} if all(field.init for field in own) else None
    if isinstance(value, dict):
        named = all(isinstance(key, str) for key in value) or (kind is dict and all(type(key) is int for key in value))
        return dict(value) if named else None
    plain = kind.__new__ is object.__new__ and hasattr(value, "__dict__") and not isinstance(value, _TYPES)
    slots = any(getattr(base, "__slots__", ()) for base in kind.__mro__)
    return dict(vars(value)) if plain and not slots and not callable(value) else None


def _made(kind: Any, parts: dict[str, Any]) -> Any:
    """Return a value of a type that has these parts."""
    if issubclass(kind, tuple | list):
        return kind(*parts.values()) if hasattr(kind, "_fields") else kind(parts.values())
    if kind is dict:
        return parts
    made: Any = kind
    if is_dataclass(kind) or issubclass(kind, dict):
        return made(**parts)
    made = made.__new__(kind)
    made.__dict__.update(parts)
    return made


def apart(
    value: Any, name: str, found: dict[str, torch.Tensor], given: Mapping[int, str] = MappingProxyType({})
) -> Any:
    """Return a value as JSON holds it: `{"tensor": NAME}` for a tensor, which is added to `found`; `{"tuple": [...]}`
    for a tuple with tensors; `{"plain": VALUE}` for a dict without tensors; `{"object": [CLASS, {...}]}` for an object;
    `{"text": ...}` for a type of torch's; another value without tensors unchanged. given: the ids of values that are
    `{"argument": NAME}`."""
    if id(value) in given:
        return {"argument": given[id(value)]}
    if isinstance(value, torch.Tensor):
        found[name] = value
        return {"tensor": name}
    if isinstance(value, _TYPES):
        return {"text": repr(value)}
    parts = parts_of(value) if name.count(".") < _DEEP else None
    kind = type(value)
    if parts is None:
        return {"plain": {"": value}} if kind is dict else value
    rest = {key: apart(part, f"{name}.{key}", found, given) for key, part in parts.items()}
    same = all(one is own for one, own in zip(rest.values(), parts.values(), strict=True))
    if kind in (tuple, list):
        return value if same else {kind.__name__: list(rest.values())}
    if kind is dict:
        if not all(isinstance(key, str) for key in rest):
            return {"numbered": {str(key): part for key, part in rest.items()}}
        return {"plain": value} if same else {"dict": rest}
    return {"object": [f"{kind.__module__}:{kind.__qualname__}", rest]}


def classes(shape: Any) -> dict[str, Any]:
    """Return the classes of the objects in what `apart` returned, by name. Raises what their modules raise."""
    paths = re.findall(r'"object": \["([^"]+)"', json.dumps(shape))
    return {
        path: operator.attrgetter(path.partition(":")[2])(importlib.import_module(path.partition(":")[0]))
        for path in paths
    }


def together(shape: Any, tensors: Iterator[torch.Tensor], given: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """Return the value that `apart` described, of the next of these tensors, of what was given where it says
    `{"argument": NAME}`, and of known classes."""
    if not isinstance(shape, dict):
        return shape
    ((kind, inner),) = shape.items()
    if kind == "plain":
        return inner
    if kind == "tensor":
        return next(tensors)
    if kind == "argument":
        return given[inner]
    if kind == "object":
        return _made(known[inner[0]], {key: together(part, tensors, given, known) for key, part in inner[1].items()})
    if kind in ("dict", "numbered"):
        made = {key: together(part, tensors, given, known) for key, part in inner.items()}
        return made if kind == "dict" else {int(key): part for key, part in made.items()}
    several = [together(part, tensors, given, known) for part in inner]
    return tuple(several) if kind == "tuple" else several


def replaced(value: Any, name: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return a copy of a value with other tensors in the places of its own; `apart` names the places."""
    if isinstance(value, torch.Tensor):
        return tensors[name]
    parts = parts_of(value) if name.count(".") < _DEEP else None
    if parts is None:
        return value
    return _made(type(value), {key: replaced(part, f"{name}.{key}", tensors) for key, part in parts.items()})


def objects(given: Mapping[str, Any]) -> dict[int, str]:
    """Return the ids of those arguments that are objects or lists, with their names."""
    return {
        id(value): name for name, value in given.items() if type(value) is not tuple and parts_of(value) is not None
    }


def others(shape: Any) -> list[Any]:
    """Return the values without tensors in what `apart` returned."""
    if type(shape) is not dict:
        return [shape]
    ((kind, inner),) = shape.items()
    if kind in ("tensor", "argument", "text"):
        return []
    if kind == "plain":
        return list(inner.values())
    if kind == "object":
        inner = inner[1]
    parts = inner.values() if isinstance(inner, dict) else inner
    return [value for part in parts for value in others(part)]
