"""Arguments and results of a call as nodes that can be compared and written as JSON, and their arrays as leaves.

A recorder has this text in front of its own: it needs the standard library, and of NumPy and torch what is imported.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

_CONSTANTS = 2000  # characters of constants; what is longer is data
PLAIN = (type(None), bool, int, float, str, bytes, complex)


class Look:
    """What was looked at: the arrays as `leaves`, each with its name, library, type, shape, strides and device."""

    def __init__(self, scalars: bool = False) -> None:
        self.leaves: list[Any] = []
        self.metas: list[tuple[Any, ...]] = []
        self.module: Any = None
        self.scalars = scalars

    def bound(self, bound: Any, signature: Any, facts: dict[str, Any]) -> tuple[Any, ...]:
        """Arguments in the order of the signature: (name, whether it is passed by name, node)."""
        nodes = []
        for at, (name, value) in enumerate(bound.arguments.items()):
            kind = signature.parameters[name].kind
            if at == 0 and facts.get("method"):
                nodes.append(("", False, self.itself(value)))
            elif kind is kind.VAR_POSITIONAL:
                nodes += [(f"{name}{i}", False, self.node(one, f"{name}{i}")) for i, one in enumerate(value)]
            elif kind is kind.VAR_KEYWORD:
                nodes += [(key, True, self.node(one, key)) for key, one in sorted(value.items())]
            else:
                by_name = kind is kind.KEYWORD_ONLY
                nodes.append((name, by_name, self.node(value, name)))
        return tuple(nodes)

    def itself(self, value: Any) -> Any:
        """The object of a method: a module, or what its attributes are."""
        if is_module(value):
            self.module = value
            state = [*value.named_parameters(), *value.named_buffers()]
            trains = any(part.training for part in value.modules())
            kind = f"{type(value).__module__}:{type(value).__qualname__}"
            return ("module", kind, trains, tuple((name, tuple(t.shape), str(t.dtype)) for name, t in state))
        return self.object(value, "")

    def object(self, value: Any, name: str, depth: int = 0) -> Any:
        """An object as what its attributes are, where these are all of it."""
        kind: Any = type(value)
        if is_module(value):
            typed = f'ksflow isolate {kind.__module__}:{kind.__qualname__} --run "COMMAND"'
            return ("other", f"{kind.__name__}, an nn.Module: isolate that, {typed}")
        plain = kind.__new__ is object.__new__ and hasattr(value, "__dict__") and "<" not in kind.__qualname__
        plain = plain and not callable(value)
        if not plain or self.scalars or depth >= 4 or any(getattr(one, "__slots__", ()) for one in kind.__mro__):
            return ("other", kind.__name__)
        parts = sorted(vars(value).items())
        inner = tuple((key, self.node(one, f"{name}_{key}" if name else key, depth + 1)) for key, one in parts)
        return ("object", f"{kind.__module__}:{kind.__qualname__}", inner)

    def node(self, value: Any, name: str, depth: int = 0) -> Any:
        """A value without its contents."""
        kind, owner = type(value), type(value).__module__.partition(".")[0]
        if owner == "numpy" or (self.scalars and kind in (int, float, bool) and "numpy" in sys.modules):
            return self.numpy(value, name)
        if owner == "torch" or kind.__name__ in ("Tensor", "Parameter"):
            return self.torch(value, name)
        if kind in PLAIN:
            return ("const", kind.__name__, repr(value)) if len(repr(value)) <= _CONSTANTS else ("other", kind.__name__)
        if kind in (slice, type(Ellipsis)):
            return ("text", repr(value))
        if kind in (list, tuple, dict) and depth < 4 and len(value) <= 64:
            pairs = value.items() if kind is dict else enumerate(value)
            inside = tuple((repr(key), self.node(one, f"{name}_{key}", depth + 1)) for key, one in pairs)
            return (kind.__name__, inside)
        return self.object(value, name, depth)

    def numpy(self, value: Any, name: str) -> Any:
        """The same for a value of NumPy's, or a plain number among results."""
        np: Any = sys.modules["numpy"]
        if isinstance(value, np.dtype):
            return ("text", f"np.dtype({str(value)!r})")
        if isinstance(value, np.generic) and not self.scalars:
            return ("text", f"np.{type(value).__name__}({value.item()!r})")
        if type(value) not in (np.ndarray, int, float, bool) and not isinstance(value, np.generic):
            return ("other", type(value).__name__)
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            return ("other", f"array of {array.dtype}")
        steps = tuple(step // (array.itemsize or 1) for step in array.strides)
        leaf = self.leaf(array, (name, "numpy", array.dtype.name, array.shape, steps, "cpu"))
        return leaf if type(value) is np.ndarray else (*leaf, type(value).__name__)

    def torch(self, value: Any, name: str) -> Any:
        """The same for a value of torch's."""
        torch: Any = sys.modules["torch"]
        if isinstance(value, (torch.dtype, torch.device)):
            return ("text", str(value) if isinstance(value, torch.dtype) else f"torch.device({str(value)!r})")
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            return ("other", type(value).__name__)
        dtype = str(value.dtype).rpartition(".")[2]
        return self.leaf(value, (name, "torch", dtype, tuple(value.shape), tuple(value.stride()), value.device.type))

    def leaf(self, value: Any, meta: tuple[Any, ...]) -> Any:
        self.leaves.append(value)
        self.metas.append(meta)
        return ("leaf", len(self.leaves) - 1)


def is_module(value: Any) -> bool:
    """Return whether a value is a module of torch's or a class of them."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(value if inspect.isclass(value) else type(value), torch.nn.Module)


def unwatchable(function: Any) -> str:
    """Why calls of a function cannot be watched; empty where they can."""
    if not callable(function):
        return f"is a {type(function).__name__}, which is not called: name a function"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator, whose work is done between its calls: name the function that computes one item"
    if inspect.iscoroutinefunction(function):
        return "is a coroutine: name the plain function that it calls"
    if isinstance(function, classmethod):
        return "is a class method: name the function that it calls"
    if type(function).__module__.startswith("numba"):
        return "is compiled by numba, whose functions call it without Python: name the function that calls it"
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return "does not say which arguments it takes: name the Python function that calls it"
    return ""


def versions(leaves: list[Any]) -> list[Any]:
    """How often torch saw each tensor written, where it counts that."""
    return [None if not hasattr(leaf, "_version") or leaf.is_inference() else leaf._version for leaf in leaves]


def copied(leaf: Any) -> Any:
    """The leaf's contents, in memory of their own."""
    return leaf.detach().clone() if hasattr(leaf, "detach") else leaf.copy(order="K")


def same(first: Any, other: Any) -> bool:
    if hasattr(first, "detach"):
        return bool(sys.modules["torch"].allclose(first, other.detach(), rtol=0.0, atol=0.0, equal_nan=True))
    return bool(sys.modules["numpy"].array_equal(first, other, equal_nan=first.dtype.kind in "fc"))
