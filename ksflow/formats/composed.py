"""Functions of NumPy and torch that are made of the operations of `traced`."""

import math
from collections.abc import Callable
from typing import Any

from ksflow.formats.size import Size


def _as_type(given: Any, kind: Any = None, *args: Any, **named: Any) -> Any:
    """Conversions: to whole numbers rounds, to another floating-point number does nothing."""
    name = str(named.get("dtype", kind) or "float").rpartition(".")[2].strip("'>")
    if name.startswith(("int", "uint")):
        return given._do("trunc", [given], {})
    if name in ("float", "float32", "float64", "double", "cpu"):
        return given
    raise NotImplementedError(f"it converts to {name}")


def _count(x: Any, axis: Any) -> Size:
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    first, *others = [Size.of(x.shape[one]) for one in axes]
    for size in others:
        first = Size.of(first * size)
    return first


def _mean(x: Any, axis: Any = None, keepdims: Any = False, **named: Any) -> Any:
    axis = named.pop("dim", axis)
    return x._reduced("sum", axis, keepdims, **named) / _count(x, axis)


def _var(x: Any, *args: Any, **named: Any) -> Any:
    """The variance. A method is NumPy's or torch's by its keywords, as the two divide by different counts."""
    less = named.pop("ddof", named.pop("correction", named.pop("unbiased", None)))
    if less is None and not ({"axis", "keepdims"} & {*named} or {"dim", "keepdim"} & {*named}):
        raise NotImplementedError("it calls var or std without axis=, dim=, ddof= or correction=")
    less = int("dim" in named or "keepdim" in named) if less is None else int(less)
    axis = args[0] if args else named.pop("axis", named.pop("dim", None))
    apart = x - _mean(x, axis, True)
    named = {"axis": axis, "keepdims": named.pop("keepdim", named.pop("keepdims", False)), **named}
    total = x._do("sum", [apart * apart], named)
    return total / (_count(x, axis) - less)


def _softmax(x: Any, *args: Any, **named: Any) -> Any:
    apart = (x - x._reduced("max", *args, keepdims=True, **named)).exp()
    return apart / apart._reduced("sum", *args, keepdims=True, **named)


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any, **__: Any) -> Any:
    axes = range(-len(shape), 0)
    apart = x - _mean(x, axes, True)
    x = apart / (_mean(apart * apart, axes, True) + eps).sqrt()
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _clip(x: Any, least: Any = None, most: Any = None, **named: Any) -> Any:
    for name, value in {"maximum": named.get("min", least), "minimum": named.get("max", most)}.items():
        x = x if value is None else x._do(name, [x, value], {})
    return x


def _gelu(x: Any, approximate: str = "none") -> Any:
    inner = (x * math.sqrt(0.5)).erf()
    if approximate == "tanh":
        inner = ((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh()
    return x * 0.5 * (inner + 1.0)


COMPOSED: dict[str, Callable[..., Any]] = {
    "mean": _mean,
    "var": _var,
    "std": lambda *args, **named: _var(*args, **named).sqrt(),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "clip": _clip,
    "clamp": _clip,
    "gelu": _gelu,
    "linear": lambda x, weight, bias=None: x @ weight.T + (0.0 if bias is None else bias),
    **dict.fromkeys(["astype", "to", "float", "double", "type"], _as_type),
}
