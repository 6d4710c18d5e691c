"""What stands for the arrays of a reference while the reference is called: it records what is done with them."""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ksflow.formats.composed import COMPOSED
from ksflow.formats.nest_loops import REDUCED
from ksflow.formats.nests import At, Nest, Node
from ksflow.formats.size import Size
from ksflow.records import Json

_LINES = Path(__file__).with_name("formulas.txt").read_text(encoding="utf-8").splitlines()
_FORMULAS = {name: formula for names, _, formula in (line.partition(": ") for line in _LINES) for name in names.split()}
_OPERATORS = ["add", "sub", "mul", "truediv", "pow", "lt", "gt", "le", "ge"]
_ROUNDS = ("round", "rint", "around", "trunc", "fix", "floor", "ceil")
_POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
_AS_IT_IS = ("copy", "clone", "contiguous", "ascontiguousarray", "asarray")


class Array:
    """What stands for an array while a reference is read. at: gives how an element is read now, which assignments
    change; view: whether it shows another array.
    """

    def __init__(self, nest: Nest, shape: Sequence[Size], at: Callable[[], At], view: bool = False) -> None:
        self.nest, self.shape, self.at, self._view = nest, tuple(shape), at, view

    ndim = property(lambda self: len(self.shape))
    T = property(lambda self: self._transpose())
    dtype = "float"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise NotImplementedError("it loops over an array in Python")

    __array__ = __iter__

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **named: Any) -> Any:
        if method not in ("__call__", "reduce") or named.get("out"):
            raise NotImplementedError(f"it calls np.{ufunc.__name__}.{method}")
        reduced = {"add": "sum", "maximum": "max", "minimum": "min"}.get(ufunc.__name__, ufunc.__name__ + ".reduce")
        return self._do(ufunc.__name__ if method == "__call__" else reduced, args, named)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        more = {"ddof": 0} if function.__name__ in ("var", "std") else {}
        return self._do(function.__name__, args, {**more, **named})

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(one for one in args if isinstance(one, Array))
        unbiased = function.__name__ in ("var", "std") and not {"unbiased", "correction"} & {*(kwargs or {})}
        return first._do(function.__name__, args, {**({"correction": 1} if unbiased else {}), **(kwargs or {})})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **named: self._do(name, (self, *args), named)

    def _do(self, name: str, args: Sequence[Any], named: Json) -> Any:
        name = name.partition(".")[0]  # of an operator of torch
        name = {"amax": "max", "amin": "min", "dot": "matmul", "mm": "matmul", "bmm": "matmul"}.get(name, name)
        if composed := COMPOSED.get(name):
            return composed(*args, **{key: value for key, value in named.items() if key != "_stacklevel"})
        if formula := _FORMULAS.get(name):
            if any(named.values()) or len(args) != formula.count("{") - formula.count("{0}") + 1:
                raise NotImplementedError(f"it calls {name} with {', '.join(named) or 'other arguments'}")
            self.nest.rounds |= name in _ROUNDS
            return self._each(formula, args)
        if name in REDUCED:
            return args[0]._reduced(name, *args[1:], **named)
        if name in _AS_IT_IS:
            return Array(self.nest, args[0].shape, (lambda at: lambda: at)(args[0].at()))
        if name == "matmul":
            return _product_of(self.nest, *args)
        if name in ("zeros_like", "empty_like", "ones_like"):
            return Array(self.nest, args[0].shape, lambda: lambda index: f"REAL({int(name == 'ones_like')})")
        if name == "sym_size":
            return self.shape[args[1]]
        if name in ("slice", "unsqueeze", "transpose", "permute", "t"):
            return getattr(self, f"_{'transpose' if name == 't' else name}")(*args[1:])
        raise NotImplementedError(f"it calls {name}")

    def _viewed(self, shape: Sequence[Size], whole: Callable[[Sequence[str]], list[str]]) -> "Array":
        """The array with other indices. whole: from an index to the one of this array."""

        def at() -> At:
            own = self.at()
            return lambda index: own(whole(index))

        return Array(self.nest, shape, at, view=True)

    def _slice(self, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> "Array":
        end = None if end is not None and end > 1 << 60 else end
        return self[(*[slice(None)] * (axis % self.ndim), slice(start, end, None if step == 1 else step))]

    def _unsqueeze(self, axis: int) -> "Array":
        return self[(*[slice(None)] * (axis % (self.ndim + 1)), None)]

    def _permute(self, axes: Sequence[int]) -> "Array":
        places = [axis % self.ndim for axis in axes]
        shape = [self.shape[place] for place in places]
        return self._viewed(shape, lambda index: [index[places.index(at)] for at in range(len(places))])

    def _transpose(self, *axes: Any) -> "Array":
        places = [*range(self.ndim)]
        if len(axes) != 2 or not isinstance(axes[0], int):
            return self._permute(axes[0] if axes and not isinstance(axes[0], int) else axes or places[::-1])
        places[axes[0]], places[axes[1]] = places[axes[1]], places[axes[0]]
        return self._permute(places)

    def _each(self, formula: str, args: Sequence[Any]) -> "Array":
        parts = [array(self.nest, one) for one in args]
        if formula == _FORMULAS["pow"]:
            return self._power(parts[0], args[1], formula)
        sizes = [*zip_longest(*(one.shape[::-1] for one in parts))][::-1]
        shape = [next((one for one in row if one is not None and one != 1), Size.of(1)) for row in sizes]
        if formula == _FORMULAS["div"] and isinstance(args[1], Array) and not self.nest.exact:
            below = parts[1].shape[-1:] or (1,)
            if shape and below[0] == 1 and shape[-1] != 1:
                return self._each(_FORMULAS["mul"], [parts[0], self._each(_FORMULAS["reciprocal"], [parts[1]])])
        read = [broadcast(one) for one in parts]
        return computed(self.nest, shape, lambda index: formula.format(*(at(index) for at in read)))

    def _power(self, base: "Array", power: Any, formula: str) -> "Array":
        number = float(power) if isinstance(power, int | float) or getattr(power, "ndim", 1) == 0 else 0.0
        if number in _POWERS:
            return self._each(_FORMULAS[_POWERS[number]], [base])
        if number.is_integer() and 1 <= number <= 16:
            return self._each(f"power<{int(number)}>({{0}})", [base])
        return self._each(formula + " ", [base, power])

    def _reduced(self, name: str, axis: Any = None, keepdims: Any = False, **named: Any) -> "Array":
        axis, keepdims = named.pop("dim", axis), named.pop("keepdim", keepdims)
        if any(value is not None for value in named.values()):
            raise NotImplementedError(f"it calls {name} with {', '.join(named)}")
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        gone = sorted({one % self.ndim for one in axes})
        at, left = self.at(), [size for one, size in enumerate(self.shape) if one not in gone]

        def value(index: Sequence[str]) -> str:
            own, reduced = iter(index[: len(left)]), iter(index[len(left) :])
            return at([next(reduced) if one in gone else next(own) for one in range(self.ndim)])

        made = computed(self.nest, left, value, [self.shape[one] for one in gone], name)
        if not keepdims:
            return made
        shape = [Size.of(1) if one in gone else size for one, size in enumerate(self.shape)]
        return made._viewed(shape, lambda index: [i for one, i in enumerate(index) if one not in gone])

    def _sliced(self, key: Any) -> tuple[list[Size], Callable[[Sequence[str]], list[str]]]:
        """The shape of a slice, and from its index to that of the whole."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in [one for one in keys if not isinstance(one, Array)]:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - sum(one is not None for one in keys) + 1)
        keys += [slice(None)] * (self.ndim - sum(one is not None for one in keys))
        shape, parts, sizes = list[Size](), list[tuple[str, bool]](), iter(self.shape)
        for one in keys:
            if one is None:
                shape.append(Size.of(1))
                parts.append(("", True))
                continue
            size = next(sizes)
            if isinstance(one, int):
                parts.append((Size.of(one if one >= 0 else size + one).text, False))
            elif isinstance(one, slice) and one.step in (None, 1):
                first, last = (
                    Size.of(default if end is None else end if end >= 0 else size + end)
                    for end, default in ((one.start, Size.of(0)), (one.stop, size))
                )
                shape.append(Size.of(last - first) if first else last)
                parts.append((first.text if first else "", True))
            else:
                raise NotImplementedError("it indexes with steps or arrays")

        def whole(index: Sequence[str]) -> list[str]:
            left, found = iter(index), []
            for (text, moves), one in zip(parts, keys, strict=True):
                at = next(left) if moves else ""
                at = "" if at == "0" and text else at
                found += [] if one is None else [" + ".join(filter(None, [at, text]))]
            return found

        return shape, whole

    def __getitem__(self, key: Any) -> "Array":
        return self._viewed(*self._sliced(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._view:
            raise NotImplementedError("it assigns to a slice of a slice")
        shape, whole = self._sliced(key)
        region = [one.text for one in map(Size.of, shape)], whole
        read = broadcast(array(self.nest, value))
        node = Node(self.nest, texts(self.shape), read, base=self.at(), region=region)
        self.at = lambda: lambda index: self.nest.read(node, index)

    def __neg__(self) -> "Array":
        return self._each(_FORMULAS["neg"], [self])

    def __matmul__(self, other: Any) -> "Array":
        return _product_of(self.nest, self, other)

    def __rmatmul__(self, other: Any) -> "Array":
        return _product_of(self.nest, other, self)


for _name in _OPERATORS:
    setattr(Array, f"__{_name}__", lambda self, other, name=_name: self._each(_FORMULAS[name], [self, other]))
    setattr(Array, f"__r{_name}__", lambda self, other, name=_name: self._each(_FORMULAS[name], [other, self]))


def texts(shape: Sequence[Size]) -> list[str]:
    """The C++ of sizes, "1" for every size of one."""
    return ["1" if size == 1 else Size.of(size).text for size in shape]


def computed(nest: Nest, shape: Sequence[Size], value: At, reduced: Sequence[Size] = (), op: str = "") -> Array:
    """An array of a node of its own."""
    node = Node(nest, texts(shape), value, reduced=[size.text for size in map(Size.of, reduced)], op=op)
    return Array(nest, shape, lambda: lambda index: nest.read(node, index))


def array(nest: Nest, value: Any) -> Array:
    """A value as an array. Raises NotImplementedError for what is neither an array nor a number."""
    if isinstance(value, Array):
        return value
    if isinstance(value, Size):
        return Array(nest, [], lambda: lambda _: f"REAL({value.text})")
    number = value.item() if getattr(value, "size", 0) == 1 or getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, int | float) and math.isfinite(number):
        return Array(nest, [], lambda: lambda _: f"REAL({float(number)!r})")
    raise NotImplementedError(f"it computes with a {type(value).__name__}")


def _product_of(nest: Nest, left: Any, right: Any) -> Array:
    """A matrix product; the second operand of a stack may be a single matrix or vector."""
    one, other = array(nest, left), array(nest, right)
    columns = other.ndim > 1
    if other.ndim > 2 and other.ndim != one.ndim:
        raise NotImplementedError("it multiplies stacks of matrices of different depth")
    shape = [*one.shape[:-1], *other.shape[-1:]] if columns else [*one.shape[:-1]]
    first, second = one.at(), other.at()

    def value(index: Sequence[str]) -> str:
        *index, k = index
        stack = index[: other.ndim - 2] if other.ndim > 2 else []
        return f"{first([*index[: one.ndim - 1], k])} * {second([*stack, k, index[-1]] if columns else [k])}"

    return computed(nest, shape, value, one.shape[-1:], "sum")


def broadcast(one: Array) -> At:
    """How an array is read with the index of one of more axes, or of longer ones."""
    at, shape = one.at(), one.shape

    def read(index: Sequence[str]) -> str:
        own = index[len(index) - len(shape) :]
        return at(["0" if size == 1 else i for size, i in zip(shape, own, strict=True)])

    return read
