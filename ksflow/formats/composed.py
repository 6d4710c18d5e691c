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
    if name in ("float", "float32", "float64", "double"):
        return given
    raise NotImplementedError(f"it converts to {name}")


def _mean(x: Any, axis: Any = None, keepdims: Any = False, **named: Any) -> Any:
    total = x._reduced("sum", axis, keepdims, **named)
    axis = named.get("dim", axis)
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    count: Size = Size.of(1)
    for one in axes:
        count = Size.of(Size.of(x.shape[one]) * count if count != 1 else x.shape[one])
    return total / count


def _var(x: Any, axis: Any = None, *, ddof: int = 0, **named: Any) -> Any:
    if ddof or {*named} - {"dim", "keepdim", "keepdims"}:
        raise NotImplementedError("it calls var with ddof or correction")
    axis = named.get("dim", axis)
    apart = x - _mean(x, axis, True)
    return _mean(apart * apart, axis, named.get("keepdim", named.get("keepdims", False)))


def _softmax(x: Any, *args: Any, **named: Any) -> Any:
    apart = (x - x._reduced("max", *args, keepdims=True, **named)).exp()
    return apart / apart._reduced("sum", *args, keepdims=True, **named)


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
    "clip": _clip,
    "clamp": _clip,
    "gelu": _gelu,
    "linear": lambda x, weight, bias=None: x @ weight.T + (0.0 if bias is None else bias),
    **dict.fromkeys(["astype", "to", "float", "double", "type"], _as_type),
}
