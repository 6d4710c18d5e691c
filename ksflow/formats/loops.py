"""A naive C++ loop nest for a reference that is made of elementwise operations, reductions, products and slices.

`ref_kernel` is called once with arrays that record what is done with them, in a process of its own; whatever else it
does, such as a loop over elements or a function that is not listed here, is the reason why there is no loop nest.
"""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from ksflow.errors import catch_foreign, one_line
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.isolated import IsolatedFailure, answer_order, run_isolated
from ksflow.records import Json, Problem

_FORMULAS = {
    name: f"std::{name}({{0}})"
    for name in ["exp", "log", "log1p", "expm1", "sqrt", "tanh", "sin", "cos", "floor", "ceil", "abs", "erf"]
}
_FORMULAS |= {
    name: formula
    for line in """add: ({0} + {1})
subtract sub: ({0} - {1})
multiply mul: ({0} * {1})
divide true_divide truediv div: ({0} / {1})
power pow: std::pow({0}, {1})
maximum: std::max<double>({0}, {1})
minimum: std::min<double>({0}, {1})
greater gt: ({0} > {1})
less lt: ({0} < {1})
greater_equal ge: ({0} >= {1})
less_equal le: ({0} <= {1})
where: ({0} ? {1} : {2})
absolute: std::abs({0})
positive: {0}
negative neg: (-({0}))
square: (({0}) * ({0}))
sigmoid: (1 / (1 + std::exp(-({0}))))
relu: std::max<double>({0}, 0)
rsqrt: (1 / std::sqrt({0}))""".splitlines()
    for names, formula in [line.split(": ", 1)]
    for name in names.split()
}
_OPERATORS = ["add", "sub", "mul", "truediv", "pow", "lt", "gt", "le", "ge"]
_REDUCED = {"sum": ("0", "{0} + {1}"), "max": ("-INFINITY", "std::max<double>({0}, {1})")}
_REDUCED |= {"mean": _REDUCED["sum"], "min": ("INFINITY", "std::min<double>({0}, {1})")}
_AS_IT_IS = ("copy", "clone", "contiguous", "astype", "float", "double", "to", "ascontiguousarray", "asarray")
_UNROLLED = "#pragma GCC unroll UNROLL"
_TUNABLE = "constexpr int UNROLL = 1;  // tune: 1 2 4 8 | unroll: innermost loops"
_MOST = 40  # loop nests of a kernel, and operations of an expression
_TIMEOUT_S = 120.0


class Size(int):
    """A size with the C++ that computes it."""

    text = ""

    @classmethod
    def of(cls, value: int, text: str = "") -> "Size":
        made = cls(value)
        made.text = text or getattr(value, "text", str(int(value)))
        return made


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "/")):

    def _both(self: Size, other: int, name: str = _name, sign: str = _sign) -> Size:
        return Size.of(getattr(int, f"__{name}__")(self, other), f"({self.text} {sign} {Size.of(other).text})")

    def _other(self: Size, other: int, name: str = _name, sign: str = _sign) -> Size:
        return Size.of(getattr(int, f"__{name}__")(int(other), self), f"({Size.of(other).text} {sign} {self.text})")

    setattr(Size, f"__{_name}__", _both)
    setattr(Size, f"__r{_name}__", _other)


class Nest:
    """The lines of a kernel."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def loops(self, shape: Sequence[Size], body: Callable[[list[str]], list[str]]) -> None:
        """Add loops over all indices of a shape."""
        if self.count > _MOST:
            raise NotImplementedError(f"it takes more than {_MOST} loop nests: does it loop over elements in Python?")
        index = [f"i{self.count}_{axis}" for axis in range(len(shape))]
        heads, lines = _heads(index, shape), body(index)
        if any(_UNROLLED in line for line in lines):
            heads = [head for head in heads if head != _UNROLLED]
        self.lines += [*heads[:-1], f"{heads[-1]} {{" if heads else "{", *(f"  {line}" for line in lines), "}"]

    def buffer(self, shape: Sequence[Size], value: Callable[[list[str]], list[str]]) -> "Array":
        """An array in memory of its own; value: the lines that compute `v`, its element at an index."""
        self.count += 1
        name, total = f"t{self.count}", " * ".join([size.text for size in shape] or ["1"])
        made = f"static thread_local std::vector<double> {name};"  # memory that a call gives back is faulted in again
        self.lines += [made, f"if ((int64_t){name}.size() < {total}) {name}.resize({total});"]

        def place(index: Sequence[str]) -> str:
            return f"{name}[{_offset(index, [_product(shape[axis + 1 :]) for axis in range(len(shape))])}]"

        self.loops(shape, lambda index: [*value(index), f"{place(index)} = v;"])
        return Array(self, shape, place)


class Array:
    """What stands for an array while a reference is read. at: an index -> the C++ of the element there."""

    def __init__(self, nest: Nest, shape: Sequence[Size], at: Callable[[Sequence[str]], str], cost: int = 0) -> None:
        self.nest, self.shape, self._at, self._cost = nest, tuple(shape), at, cost

    ndim = property(lambda self: len(self.shape))
    T = property(lambda self: self._transpose())

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise NotImplementedError("it loops over an array in Python")

    __array__ = __iter__

    def kept(self) -> "Array":
        """The same in memory of its own."""
        return self.nest.buffer(self.shape, lambda index: [f"double v = {self._at(index)};"])

    def _assign(self, made: "Array") -> None:
        """Have the nest write another array's elements into this one's."""
        self.nest.loops(self.shape, lambda index: [f"{self._at(index)} = {made._at(index)};"])

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **named: Any) -> Any:
        if method not in ("__call__", "reduce") or named.get("out"):
            raise NotImplementedError(f"it calls np.{ufunc.__name__}.{method}")
        return self._do(ufunc.__name__ if method == "__call__" else "sum", args, named)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        return self._do(function.__name__, args, named)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(one for one in args if isinstance(one, Array))
        return first._do(function.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **named: self._do(name, (self, *args), named)

    def _do(self, name: str, args: Sequence[Any], named: Json) -> Any:
        name = name.partition(".")[0]  # of an operator of torch
        name = {"amax": "max", "amin": "min", "dot": "matmul", "mm": "matmul", "bmm": "matmul"}.get(name, name)
        if formula := _FORMULAS.get(name):
            return self._each(formula, args)
        if name in _REDUCED:
            return args[0]._reduced(name, *args[1:], **named)
        if name == "softmax":
            top = args[0] - args[0]._reduced("max", *args[1:], keepdims=True, **named)
            return (powers := top.exp().kept()) / powers._reduced("sum", *args[1:], keepdims=True, **named)
        if name in _AS_IT_IS:
            return args[0].kept() if name in ("copy", "clone") else args[0]
        if name == "matmul":
            return _product_of(self.nest, *args)
        if name in ("zeros_like", "empty_like", "ones_like"):
            return Array(self.nest, args[0].shape, lambda index: "1" if name == "ones_like" else "0").kept()
        if name == "linear":
            return (self @ args[1].T) + (args[2] if args[2:] else 0.0)
        if name == "sym_size":
            return self.shape[args[1]]
        if name in ("slice", "unsqueeze", "transpose", "permute", "t"):
            return getattr(self, f"_{'transpose' if name == 't' else name}")(*args[1:])
        raise NotImplementedError(f"it calls {name}")

    def _slice(self, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> "Array":
        end = None if end is not None and end > 1 << 60 else end
        return self[(*[slice(None)] * (axis % self.ndim), slice(start, end, None if step == 1 else step))]

    def _unsqueeze(self, axis: int) -> "Array":
        return self[(*[slice(None)] * (axis % (self.ndim + 1)), None)]

    def _permute(self, axes: Sequence[int]) -> "Array":
        places = [axis % self.ndim for axis in axes]
        shape = [self.shape[place] for place in places]
        return Array(self.nest, shape, lambda index: self._at([index[places.index(at)] for at in range(self.ndim)]))

    def _transpose(self, *axes: Any) -> "Array":
        places = [*range(self.ndim)]
        if len(axes) != 2 or not isinstance(axes[0], int):
            return self._permute(axes[0] if axes and not isinstance(axes[0], int) else axes or places[::-1])
        places[axes[0]], places[axes[1]] = places[axes[1]], places[axes[0]]
        return self._permute(places)

    def _each(self, formula: str, args: Sequence[Any]) -> "Array":
        parts = [_array(self.nest, one) for one in args]
        parts = [one.kept() if one._cost > _MOST // 4 else one for one in parts]
        sizes = [*zip_longest(*(one.shape[::-1] for one in parts))][::-1]
        shape = [next((one for one in row if one is not None and one != 1), Size.of(1)) for row in sizes]

        def at(index: Sequence[str]) -> str:
            return formula.format(*(_broadcast(one, index) for one in parts))

        return Array(self.nest, shape, at, 1 + sum(one._cost for one in parts))

    def _reduced(self, name: str, axis: Any = None, keepdims: Any = False, **named: Any) -> "Array":
        axis, keepdims = named.pop("dim", axis), named.pop("keepdim", keepdims)
        if any(value is not None for value in named.values()):
            raise NotImplementedError(f"it calls {name} with {', '.join(named)}")
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        gone = {one % self.ndim for one in axes}
        start, step = _REDUCED[name]
        count = _product([self.shape[one] for one in gone])

        def value(index: Sequence[str]) -> list[str]:
            left = iter(index)
            full = [f"r{at}" if at in gone else next(left) for at in range(self.ndim)]
            loops = _heads([f"r{at}" for at in sorted(gone)], [self.shape[at] for at in sorted(gone)])
            lines = [f"double v = {start};", *loops, f"  v = {step.format('v', self._at(full))};"]
            return [*lines, *([f"v /= {count};"] if name == "mean" else [])]

        made = self.nest.buffer([size for at, size in enumerate(self.shape) if at not in gone], value)
        if not keepdims:
            return made
        shape = [Size.of(1) if at in gone else size for at, size in enumerate(self.shape)]
        return Array(self.nest, shape, lambda index: made._at([i for at, i in enumerate(index) if at not in gone]))

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
                found += [] if one is None else [" + ".join(filter(None, [at, text]))]
            return found

        return shape, whole

    def __getitem__(self, key: Any) -> "Array":
        shape, whole = self._sliced(key)
        return Array(self.nest, shape, lambda index: self._at(whole(index)), self._cost)

    def __setitem__(self, key: Any, value: Any) -> None:
        shape, whole = self._sliced(key)
        fresh, given = _array(self.nest, value), self.kept()  # what was made of the array until now keeps its contents
        self.nest.loops(shape, lambda index: [f"{given._at(whole(index))} = {_broadcast(fresh, index)};"])
        self._at, self._cost = given._at, 0

    def __neg__(self) -> "Array":
        return self._each(_FORMULAS["neg"], [self])

    def __matmul__(self, other: Any) -> "Array":
        return _product_of(self.nest, self, other)


for _name in _OPERATORS:
    setattr(Array, f"__{_name}__", lambda self, other, name=_name: self._each(_FORMULAS[name], [self, other]))
    setattr(Array, f"__r{_name}__", lambda self, other, name=_name: self._each(_FORMULAS[name], [other, self]))


def _heads(index: Sequence[str], shape: Sequence[Size]) -> list[str]:
    """The heads of loops over all indices of a shape, the innermost of which is unrolled."""
    heads = [f"for (int64_t {i} = 0; {i} < {size.text}; {i}++)" for i, size in zip(index, shape, strict=True)]
    return [*heads[:-1], _UNROLLED, heads[-1]] if heads else []


def _array(nest: Nest, value: Any) -> Array:
    if isinstance(value, Array):
        return value
    if isinstance(value, Size):
        return Array(nest, [], lambda _: f"double({value.text})")
    number = value.item() if getattr(value, "size", 0) == 1 or getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, int | float) and math.isfinite(number):
        return Array(nest, [], lambda _: repr(float(number)))
    raise NotImplementedError(f"it computes with a {type(value).__name__}")


def _product_of(nest: Nest, left: Any, right: Any) -> Array:
    """A matrix product; the second operand of a stack may be a single matrix or vector."""
    one, other = _array(nest, left), _array(nest, right)
    rows, columns = one.ndim > 1, other.ndim > 1
    if other.ndim > 2 and other.ndim != one.ndim:
        raise NotImplementedError("it multiplies stacks of matrices of different depth")
    shape = [*one.shape[:-1], *other.shape[-1:]] if columns else [*one.shape[:-1]]
    k = one.shape[-1]

    def value(index: Sequence[str]) -> list[str]:
        lead = list(index[: one.ndim - 1]) if rows else []
        stack = list(index[: other.ndim - 2]) if other.ndim > 2 else []
        second = [*stack, "k", index[-1]] if columns else ["k"]
        product = f"{one._at([*lead, 'k'])} * {other._at(second)}"
        return ["double v = 0;", *_heads(["k"], [k]), f"  v += {product};"]

    return nest.buffer(shape, value)


def _broadcast(one: Array, index: Sequence[str]) -> str:
    own = index[len(index) - one.ndim :]
    return one._at(["0" if size == 1 else at for size, at in zip(one.shape, own, strict=True)])


def _product(sizes: Sequence[Size]) -> str:
    return " * ".join([size.text for size in sizes]) or "1"


def _offset(index: Sequence[str], steps: Sequence[str]) -> str:
    terms = [f"({i}) * {step}" if step != "1" else i for i, step in zip(index, steps, strict=True)]
    return " + ".join(term for term in terms if not term.startswith("(0) *")) or "0"


def naive(problem: Problem, reference: Path | None = None, isolated: bool = True) -> tuple[str, str]:
    """A naive C++ kernel for a problem, or "" and why there is none. reference: a file, if not the problem's own."""
    order = {
        "reference": str(reference or Path(problem.root, "reference.py")),
        "args": [[arg.name, arg.dtype, arg.role] for arg in problem.args],
        "dims": problem.dims,
        "cases": [{**case.params, "seed": case.seed} for case in (*problem.tests, *problem.benchmarks)],
        "signature": problem.signature,
    }
    if not isolated:
        return generate(order)
    try:
        text, why = run_isolated("ksflow.formats.loops", order, _TIMEOUT_S)
    except IsolatedFailure as error:
        return "", one_line(str(error))
    return text, why


def generate(order: Json) -> tuple[str, str]:
    """The same in this process."""
    if odd := [name for name, dtype, _ in order["args"] if dtype not in ("float32", "float64")]:
        return "", f"{odd[0]} is neither float32 nor float64"
    if any(role == "inout" for *_, role in order["args"]):
        return "", "it changes an argument in place"
    module = load_module("ksflow_looped", order["reference"])
    count = sum(role == "in" for *_, role in order["args"])
    texts: list[str] = []
    with torch.no_grad(), catch_foreign() as caught:
        every = [_several(module.generate_input(**case)) for case in order["cases"]]
        plain = [all(torch.as_tensor(one).is_contiguous() for one in several) for several in zip(*every, strict=True)]
        plain += [False] * (len(order["args"]) - len(plain))  # unknown of an output that the reference makes
        order = order | {"plain": plain}
        data = [each[:count] for each in every]
        forward = getattr(module, "forward", None) or (
            lambda *given: module.ref_kernel(given if count > 1 else given[0])
        )
        shapes = [[tuple(one.shape) for one in (*each, *_several(forward(*each)))] for each in data]
        texts += [_text(forward, order, shapes, at, count) for at in {0: 0, len(data) - 1: 0}]
    if caught:
        known = isinstance(caught[0], NotImplementedError)
        return "", one_line(str(caught[0]) if known else f"{type(caught[0]).__name__}: {caught[0]}")
    return (texts[0], "") if len({*texts}) == 1 else ("", "what it does depends on the sizes")


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _text(forward: Callable[..., Any], order: Json, shapes: list[Any], at: int, count: int) -> str:
    """The kernel, as the reference computes a case. shapes: of all arguments, by case."""
    nest, arrays, first = Nest(), list[Array](), 0
    for index, (name, _, _) in enumerate(order["args"]):
        several = [each[index] for each in shapes]
        shape = [Size.of(several[at][axis], _named(axis, several, order)) for axis in range(len(several[at]))]
        steps = [f"strides[{first + axis}]" for axis in range(len(shape))]
        if order["plain"][index]:
            steps = [_product(shape[axis + 1 :]) for axis in range(len(shape))]
        arrays.append(_argument(nest, name, shape, steps))
        first += len(shape)
    for out, result in zip(arrays[count:], _several(forward(*arrays[:count])), strict=True):
        out._assign(_array(nest, result))
        nest.count += 1
    body = "\n".join(f"  {line}" for line in nest.lines)
    heads = "".join(f"#include <{name}>\n" for name in ("algorithm", "cmath", "cstdint", "vector"))
    head = f"// Plain loops, made from the reference, to start from.\n{heads}\n{_TUNABLE}\n"
    return f"{head}\n{order['signature']} {{\n{body}\n}}\n"


def _argument(nest: Nest, name: str, shape: Sequence[Size], steps: Sequence[str]) -> Array:
    return Array(nest, shape, lambda index: f"{name}[{_offset(index, steps)}]")


def _named(axis: int, shapes: list[tuple[int, ...]], order: Json) -> str:
    """A dimension's size in C++: a size of the case, or a number."""
    sizes = [shape[axis] for shape in shapes]
    for dim in order["dims"]:
        for more in (0, 1, -1, 2, -2):
            if all(case.get(dim) == size - more for case, size in zip(order["cases"], sizes, strict=True)):
                return f"({dim} + {more})" if more else str(dim)
    if len({*sizes}) > 1:
        raise NotImplementedError("a size is none of a case's sizes")
    return str(sizes[0])


if __name__ == "__main__":
    answer_order(generate)
