"""Sizes that a source names at its top level, and the same source with smaller ones. The source is parsed, never run.

Cutting keeps sizes apart that were apart: were all of them simply bounded by the same number, a kernel that takes one
dimension for another would be right at the sizes that are judged and wrong at those that were asked for.
"""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

VERSION = 2  # raised where the same cap cuts otherwise, and verdicts from before do not compare
Edit = Sequence[Any]  # [first byte, end, value, name]: a whole number, which a cap may lower
_BATCH = re.compile(r"batch|^bs$|^b$", re.IGNORECASE)  # names of sizes that say how often the same work is done
_BATCHES = 16  # by how much lower a batch is capped: it is cut first, which changes least of what is computed
_LEAST_BATCH = 2
_LEAST = 4  # no size is made smaller than this, and none is cut that is not above it
_KEPT = 8  # numbers up to this one are kernel sizes, strides, heads and groups more often than sizes
_LOSSES = (4.0, 2.0, 1.2)
"""A size may be made smaller than it has to be by these factors, where it then still divides what it divided: the first
that leaves room for all."""
_DIVIDERS = 16  # numbers up to this one are taken for what sizes are divided by
_MAKERS = ("get_inputs", "get_init_inputs")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: pow,
    ast.LShift: operator.lshift,
}


def constants(module: ast.Module) -> dict[str, ast.expr]:
    """Names that are assigned at top level, alone or several at once -> what they are assigned."""
    assigned: dict[str, ast.expr] = {}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                pairs = [*zip(names, values, strict=True)]
            case ast.Assign(targets=names, value=value) if all(isinstance(name, ast.Name) for name in names):
                pairs = [(name, value) for name in names]
            case ast.AnnAssign(target=ast.Name() as name, value=ast.expr() as value):
                pairs = [(name, value)]
            case _:
                continue
        assigned |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return assigned


def edits(source: str) -> list[Edit]:
    """Where its whole numbers are. SyntaxError."""
    starts = [0, *itertools.accumulate(len(line) for line in source.encode().splitlines(keepends=True))]

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    places: list[Edit] = []
    known = constants(ast.parse(source))
    named = {id(value): name for name, value in known.items()}  # of names that are assigned together the last
    for name, value in known.items():
        if named[id(value)] == name:
            places += [[*span(node), number, name] for node, number in _numbers(value)]
    return sorted(places, key=lambda edit: int(edit[0]))


def resize_source(source: str, edits: Sequence[Edit], cap: int) -> tuple[str, list[str]]:
    """The source with whole numbers cut by a cap as `cut_sizes` does it, and which sizes became the same, in words:
    `K and M are 16`. 0 leaves all as they are; numbers above 1 that what makes the inputs has stay.
    """
    if not cap:
        return source, []
    makers = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in _MAKERS]
    nodes = (node for maker in makers for node in ast.walk(maker))
    fixed = {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int}
    numbers = [(name, value) for _, _, value, name in edits]
    smaller = cut_sizes(numbers, cap, {number for number in fixed if number > 1})
    body = source.encode()
    for (begin, end, before, _), value in reversed([*zip(edits, smaller, strict=True)]):
        if value != before:
            body = body[:begin] + str(value).encode() + body[end:]
    return body.decode(), describe_merged(numbers, smaller)


def describe_merged(before: Sequence[tuple[str, int]], after: Sequence[int]) -> list[str]:
    """Of named numbers that differ, and those they were cut to, which became the same, in words."""
    merged: dict[int, dict[int, str]] = {}
    for (name, value), smaller in zip(before, after, strict=True):
        merged.setdefault(smaller, {}).setdefault(value, name)
    moved = {small for (_, value), small in zip(before, after, strict=True) if small != value}
    rows = {small: names for small, names in merged.items() if small in moved and len(names) > 1}
    return [f"{' and '.join(names.values())} are {small}" for small, names in rows.items()]


def cut_sizes(numbers: Sequence[tuple[str, int]], cap: int, fixed: Iterable[int] = ()) -> list[int]:
    """Named whole numbers, none above a cap: numbers that differ still do, in the same order, where there is room.

    A number keeps what it divides, and what divides it, where that can be had. A batch is capped at a sixteenth of the
    others' cap, so that it is cut first, and may change places with other numbers; one that equals another number stays
    equal to it, as they may have to be. fixed: numbers beside them that stay, which none is made equal to. Where there
    is no room for all (few can differ under a small cap), every number above the cap becomes the cap:
    `describe_merged` says which those are.
    """
    few = max(cap // _BATCHES, _LEAST_BATCH)
    others = {value for name, value in numbers if not _BATCH.search(name)}
    batches = {value for _, value in numbers} - others
    stay = {*fixed, *(value for value in batches if value <= few)}
    ordered = sorted(others, reverse=True)
    distinct = filter(None, (_cut_distinct(ordered, cap, stay, loss) for loss in _LOSSES))
    smaller = next(distinct, {each: min(each, cap) for each in ordered})
    taken = {*smaller.values(), *fixed}
    fewer = {value: _cut_batch(value, few, taken) for value in batches}
    return [fewer.get(value) or smaller[value] for _, value in numbers]


def _cut_distinct(ordered: Sequence[int], cap: int, stay: set[int], loss: float) -> dict[int, int]:
    """Value -> what it is cut to, largest first, all different; nothing where there is no room."""
    least = min(cap, _KEPT)
    held = {small for small in ordered if small <= least} | stay
    small = [number for number in ordered if 1 < number <= _DIVIDERS]
    sizes: dict[int, int] = {}
    limit = cap
    for value in ordered:
        if value <= max(limit, least):
            sizes[value] = value
        else:
            less = _best(value, limit, sizes, small, held, loss) if limit >= _LEAST else None
            if less is None:
                return {}
            sizes[value] = less
        limit = min(limit, sizes[value] - 1)
    return sizes


def _best(
    value: int, limit: int, larger: Mapping[int, int], small: Sequence[int], held: set[int], loss: float
) -> int | None:
    """What a number becomes that must not be above a limit; None where there is nothing left.

    larger: numbers above it, with what they became. small: numbers that it may have to be a multiple of. held: numbers
    that others have.
    """
    free = [number for number in _candidates(value, limit) if _LEAST <= number <= limit and number not in held]
    multiples = [after for before, after in larger.items() if before % value == 0]
    dividers = [number for number in small if value % number == 0 and number < value]

    def worth(number: int) -> tuple[int, bool, int]:
        shared = sum(after % number == 0 for after in multiples) + sum(number % each == 0 for each in dividers)
        return shared, value % number == 0, number

    near = [number for number in free if number * loss >= limit]
    return max(near or free, key=worth, default=None)


def _candidates(value: int, limit: int) -> Iterator[int]:
    """Numbers to choose from: the divisors of a number, and numbers near the limit that 2 divides as often as it."""
    for divisor in range(1, int(value**0.5) + 1):
        if value % divisor == 0:
            yield from (divisor, value // divisor)
    twos = value & -value
    while twos > max(limit // 4, 1):
        twos //= 2
    top = limit // twos
    top -= value // twos % 2 and not top % 2
    yield from (twos * number for number in range(top, max(top - 2 * _KEPT, 0), -1))


def _cut_batch(batch: int, limit: int, taken: set[int]) -> int:
    """A batch that is no larger than a limit, if it can be had without being equal to another size."""
    if batch <= limit:
        return batch
    divisors = [number for number in range(_LEAST_BATCH, min(batch, 4 * limit) + 1) if batch % number == 0]
    near = [number for number in (*reversed(divisors), *range(limit, 1, -1)) if number <= limit and number not in taken]
    beyond = [number for number in (*divisors, *range(limit, batch)) if number > limit and number not in taken]
    return next(iter([*near, *beyond]), limit)


def _numbers(node: ast.expr) -> list[tuple[ast.expr, int]]:
    """The largest expressions inside that are numbers alone, with their values."""
    number = _number(node)
    if number is not None:
        return [(node, number)]
    return [part for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for part in _numbers(child)]


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = _number(left), _number(right)
            if first is None or second is None or (second == 0 and isinstance(op, ast.FloorDiv)):
                return None
            large = isinstance(op, ast.Pow | ast.LShift) and not 0 <= second < 64
            large |= isinstance(op, ast.Pow) and abs(first) >= 1 << 16
            return None if large else int(_OPERATORS[type(op)](first, second))
    return None
