"""A C++ kernel to start from for a reference made of elementwise operations, reductions, products and slices.

`ref_kernel` is called once with arrays that record what is done with them (`traced`), in a process of its own; whatever
else it does, such as a loop over elements or a function that is not listed there, is the reason why there is no kernel.
`nests` chooses the loops, and gives them tunables.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ksflow.errors import catch_foreign, one_line
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.isolated import IsolatedFailure, answer_order, run_isolated
from ksflow.formats.nests import Nest, Node
from ksflow.formats.size import Size
from ksflow.formats.traced import Array, array, broadcast, texts
from ksflow.records import Json, Problem

_TIMEOUT_S = 120.0


def naive(problem: Problem, reference: Path | None = None, isolated: bool = True) -> tuple[str, str]:
    """A C++ kernel for a problem, or "" and why there is none. reference: a file, if not the problem's own."""
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
        data = [each[:count] for each in every]
        forward = getattr(module, "forward", None) or (
            lambda *given: module.ref_kernel(given if count > 1 else given[0])
        )
        whole = [(*each, *(given[count:] or _several(forward(*each)))) for each, given in zip(data, every, strict=True)]
        plain = [all(torch.as_tensor(one).is_contiguous() for one in several) for several in zip(*whole, strict=True)]
        order = order | {"plain": plain}
        shapes = [[tuple(one.shape) for one in each] for each in whole]
        told = _telling(shapes)
        texts += [_text(forward, order, shapes, at, count) for at in {told[0]: 0, told[-1]: 0}]
    if caught:
        known = isinstance(caught[0], NotImplementedError)
        return "", one_line(str(caught[0]) if known else f"{type(caught[0]).__name__}: {caught[0]}")
    return (texts[0], "") if len({*texts}) == 1 else ("", "what it does depends on the sizes")


def _telling(shapes: list[Any]) -> list[int]:
    """The cases to trace: not those in which a size that varies is 1, as a size of 1 is broadcast, unless only those
    tell two sizes apart.
    """
    sizes = [*zip(*([size for shape in each for size in shape] for each in shapes), strict=True)]
    long = [at for at in range(len(shapes)) if not any(size[at] == 1 < max(size) for size in sizes)]
    told_apart = len({tuple(size[at] for at in long) for size in sizes}) == len({*sizes})
    return long if long and told_apart else [*range(len(shapes))]


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def least_reads(forward: Callable[..., Any], order: Json, shapes: Sequence[Any], count: int) -> list[list[list[str]]]:
    """Of each input the parts that every kernel reads, as sizes whose product is the part's elements. Returns [] if
    the function cannot be traced."""
    found = list[dict[str, list[list[str]]]]()
    with catch_foreign() as caught:
        for at in (0, len(shapes) - 1):
            dims = {f"dim{index}_": order["cases"][at][dim] for index, dim in enumerate(order["dims"])}
            found.append(_nest(forward, order, shapes, at, count, False).least_reads(dims))
    if caught or found[0] != found[1]:
        return []
    names = {f"dim{index}_": dim for index, dim in enumerate(order["dims"])}
    named = partial(re.sub, r"dim\d+_", lambda place: names[place[0]])
    return [[[named(size) for size in part] for part in found[0].get(f"arg{at}_", [])] for at in range(count)]


def _text(forward: Callable[..., Any], order: Json, shapes: list[Any], at: int, count: int, exact: bool = False) -> str:
    """The kernel, as the reference computes a case. shapes: of all arguments, by case."""
    nest = _nest(forward, order, shapes, at, count, exact)
    if nest.rounds and not exact:
        return _text(forward, order, shapes, at, count, exact=True)
    double = any(dtype == "float64" for _, dtype, _ in order["args"])
    names = {f"arg{index}_": name for index, (name, *_) in enumerate(order["args"])}
    names |= {f"dim{index}_": dim for index, dim in enumerate(order["dims"])}
    return nest.text("double" if double else "float", order["signature"], names)


def _nest(forward: Callable[..., Any], order: Json, shapes: Sequence[Any], at: int, count: int, exact: bool) -> Nest:
    """What the reference computes for a case, over placeholders for the names of arguments and sizes."""
    nest, arrays, steps, first = Nest(exact), list[Array](), list[list[str]](), 0
    for index in range(len(order["args"])):
        several = [each[index] for each in shapes]
        shape = [Size.of(several[at][axis], _named(axis, several, order)) for axis in range(len(several[at]))]
        own = [f"strides[{first + axis}]" for axis in range(len(shape))]
        if order["plain"][index]:
            own = [" * ".join(size.text for size in shape[axis + 1 :]) or "1" for axis in range(len(shape))]
        arrays.append(_argument(nest, f"arg{index}_", shape, own))
        steps.append(own)
        first += len(shape)
    for index, result in enumerate(_several(forward(*arrays[:count])), count):
        out = Node(nest, texts(arrays[index].shape), broadcast(array(nest, result)), steps=steps[index])
        out.out = f"arg{index}_"
    return nest


def _argument(nest: Nest, name: str, shape: list[Size], steps: list[str]) -> Array:
    return Array(nest, shape, lambda: lambda index: nest.leaf(name, index, steps))


def _named(axis: int, shapes: list[tuple[int, ...]], order: Json) -> str:
    """A dimension's size in C++: a size of the case, or a number."""
    sizes = [shape[axis] for shape in shapes]
    for index, dim in enumerate(order["dims"]):
        for more in (0, 1, -1, 2, -2):
            if all(case.get(dim) == size - more for case, size in zip(order["cases"], sizes, strict=True)):
                return f"(dim{index}_ + {more})" if more else f"dim{index}_"
    if len({*sizes}) > 1:
        raise NotImplementedError("a size is none of a case's sizes")
    return str(sizes[0])


if __name__ == "__main__":
    answer_order(generate)
