"""Sizes that a source names at its top level, and the same source with smaller ones. The source is parsed, never run.

`batch_size = 8192 * 2` names one; what is computed from names follows by itself.

Cutting keeps sizes apart that were apart: were all of them simply bounded by the same number, a kernel that takes one
dimension for another would be right at the sizes that are judged and wrong at those that were asked for.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

VERSION = 2
"""Of what a cap makes of sizes: raised where the same cap cuts otherwise, and verdicts from before do not compare."""
Edit = Sequence[Any]
"""[first byte, end, value, name]: a whole number, which a cap may lower, or the text that stands there in any case."""
_BATCH = re.compile(r"batch|^bs$|^b$", re.IGNORECASE)
"""Names of sizes that say how often the same work is done."""
_BATCHES = 16
"""By how much lower a batch is capped: it is cut first, which changes least of what is computed."""
_LEAST_BATCH = 2
_LEAST = 4
"""No size is made smaller than this, and none is cut that is not above it."""
_KEPT = 8
"""Numbers up to this one are kernel sizes, strides, heads and groups more often than sizes."""
_LOSSES = (4.0, 2.0, 1.2)
"""A size may be made smaller than it has to be by these factors, where it then still divides what it divided: the first
that leaves room for all."""
_DIVIDERS = 16
"""Numbers up to this one are taken for what sizes are divided by."""
_MAKERS = ("get_inputs", "get_init_inputs")


def constants(source: str) -> dict[str, ast.expr]:
    """Names that are assigned at top level, alone or several at once -> what they are assigned. SyntaxError."""
    return assigned(ast.parse(source))


def assigned(module: ast.Module) -> dict[str, ast.expr]:
    """The same of what was parsed."""
    return {name: value for node in module.body for name, value in _assigned(node)}


def _assigned(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=names, value=value) if all(isinstance(name, ast.Name) for name in names):
            return [(name.id, value) for name in names if isinstance(name, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            return [(name.id, value) for name, value in zip(names, values, strict=True) if isinstance(name, ast.Name)]
    return []


def edits(source: str, overrides: Mapping[str, Any]) -> list[Edit]:
    """Where its whole numbers are, and what `overrides` puts for a name in place of what is there. SyntaxError.

    Of names that are assigned together (`height = width = 256`), what is put for one holds for all.
    """
    starts = _starts(source)
    found: list[Edit] = []
    known = constants(source)
    named = {id(value): name for name, value in known.items()}
    named |= {id(value): name for name, value in known.items() if name in overrides}
    for name, value in known.items():
        if named[id(value)] != name:
            continue
        if name in overrides:
            found.append([*_span(value, starts), repr(overrides[name]), name])
        else:
            found += [[*_span(node, starts), number, name] for node, number in _numbers(value)]
    return sorted(found, key=lambda edit: int(edit[0]))


def resized(source: str, edits: Sequence[Edit], cap: int) -> str:
    """The source after the edits, with whole numbers cut by a cap as `cut` does it; 0 leaves them as they are."""
    numbers = [(name, value) for _, _, value, name in edits if not isinstance(value, str)]
    smaller = iter(cut(numbers, cap, _fixed(source, edits)) if cap else [value for _, value in numbers])
    values = [value if isinstance(value, str) else next(smaller) for _, _, value, _ in edits]
    body = source.encode()
    for (begin, end, before, _), value in reversed([*zip(edits, values, strict=True)]):
        if value != before or isinstance(value, str):
            body = body[:begin] + str(value).encode() + body[end:]
    return body.decode()


def merged(source: str, edits: Sequence[Edit], cap: int) -> list[str]:
    """Of sizes that differ in the source and are the same under a cap, in words: `K and M are 16`."""
    numbers = [(name, value) for _, _, value, name in edits if not isinstance(value, str)]
    return alike(numbers, cut(numbers, cap, _fixed(source, edits)) if cap else [value for _, value in numbers])


def alike(before: Sequence[tuple[str, int]], after: Sequence[int]) -> list[str]:
    """The same of named numbers and what they were cut to."""
    found: dict[int, dict[int, str]] = {}
    for (name, value), smaller in zip(before, after, strict=True):
        found.setdefault(smaller, {}).setdefault(value, name)
    moved = {small for (_, value), small in zip(before, after, strict=True) if small != value}
    rows = {small: names for small, names in found.items() if small in moved and len(names) > 1}
    return [f"{' and '.join(names.values())} are {small}" for small, names in rows.items()]


def cut(numbers: Sequence[tuple[str, int]], cap: int, fixed: Iterable[int] = ()) -> list[int]:
    """Named whole numbers, none above a cap: numbers that differ still do, in the same order, where there is room.

    A number keeps what it divides, and what divides it, where that can be had. A batch is capped at a sixteenth of the
    others' cap, so that it is cut first, and may change places with other numbers; one that equals another number stays
    equal to it, as they may have to be. fixed: numbers beside them that
    stay, which none is made equal to. Where there is no room for all (few can differ under a small cap), every number
    above the cap becomes the cap: `alike` says which those are.
    """
    few = max(cap // _BATCHES, _LEAST_BATCH)
    others = {value for name, value in numbers if not _BATCH.search(name)}
    batches = {value for _, value in numbers} - others
    stay = {*fixed, *(value for value in batches if value <= few)}
    smaller = _apart(others, cap, stay)
    taken = {*smaller.values(), *fixed}
    fewer = {value: _fewer(value, few, taken) for value in batches}
    return [fewer.get(value) or smaller[value] for _, value in numbers]


def _apart(values: Iterable[int], cap: int, stay: set[int]) -> dict[int, int]:
    """Value -> what it is cut to; all that are above the cap alike, where there is no room for all."""
    ordered = sorted(values, reverse=True)
    found = (_placed(ordered, cap, stay, loss) for loss in _LOSSES)
    return next(filter(None, found), {each: min(each, cap) for each in ordered})


def _placed(ordered: Sequence[int], cap: int, stay: set[int], loss: float) -> dict[int, int]:
    """The same, largest first; nothing where there is no room."""
    kept = min(cap, _KEPT)
    held = {small for small in ordered if small <= kept} | stay
    small = [number for number in ordered if 1 < number <= _DIVIDERS]
    found: dict[int, int] = {}
    limit = cap
    for value in ordered:
        if value <= max(limit, kept):
            found[value] = value
        else:
            less = _best(value, limit, found, small, held, loss) if limit >= _LEAST else None
            if less is None:
                return {}
            found[value] = less
        limit = min(limit, found[value] - 1)
    return found


def _best(
    value: int, limit: int, larger: Mapping[int, int], small: Sequence[int], held: set[int], loss: float
) -> int | None:
    """What a number becomes that must not be above a limit; None where there is nothing left.

    larger: numbers above it, with what they became. small: numbers that it may have to be a multiple of. held: numbers
    that others have.
    """
    room = [number for number in _candidates(value, limit) if _LEAST <= number <= limit and number not in held]
    multiples = [after for before, after in larger.items() if before % value == 0]
    dividers = [number for number in small if value % number == 0 and number < value]

    def worth(number: int) -> tuple[int, bool, int]:
        kept = sum(after % number == 0 for after in multiples) + sum(number % each == 0 for each in dividers)
        return kept, value % number == 0, number

    near = [number for number in room if number * loss >= limit]
    return max(near or room, key=worth, default=None)


def _candidates(value: int, limit: int) -> Iterator[int]:
    """Numbers to choose from: the divisors of a number, and numbers near the limit that 2 divides as often as it."""
    for one in range(1, int(value**0.5) + 1):
        if value % one == 0:
            yield from (one, value // one)
    twos = value & -value
    while twos > max(limit // 4, 1):
        twos //= 2
    top = limit // twos
    top -= value // twos % 2 and not top % 2
    yield from (twos * number for number in range(top, max(top - 2 * _KEPT, 0), -1))


def _fewer(batch: int, limit: int, taken: set[int]) -> int:
    """A batch that is no larger than a limit, if it can be had without being equal to another size."""
    if batch <= limit:
        return batch
    divisors = [number for number in range(_LEAST_BATCH, min(batch, 4 * limit) + 1) if batch % number == 0]
    near = [number for number in (*reversed(divisors), *range(limit, 1, -1)) if number <= limit and number not in taken]
    beyond = [number for number in (*divisors, *range(limit, batch)) if number > limit and number not in taken]
    return next(iter([*near, *beyond]), limit)


def _fixed(source: str, edits: Sequence[Edit]) -> set[int]:
    """Numbers above 1 that stay as they are: what makes the inputs has them, or a user has given them."""
    given = [node for _, _, text, _ in edits if isinstance(text, str) for node in ast.walk(ast.parse(text))]
    module = ast.parse(source)
    makers = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name in _MAKERS]
    nodes = [*given, *(node for maker in makers for node in ast.walk(maker))]
    found = {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int}
    return {number for number in found if number > 1}


def _numbers(node: ast.expr) -> list[tuple[ast.expr, int]]:
    """The largest expressions inside that are numbers alone, with their values."""
    number = _number(node)
    if number is not None:
        return [(node, number)]
    return [found for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for found in _numbers(child)]


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _number(left), _number(right)
            return None if one is None or other is None else _calculated(one, op, other)
    return None


def _calculated(one: int, op: ast.operator, other: int) -> int | None:
    match op:
        case ast.Add():
            return one + other
        case ast.Sub():
            return one - other
        case ast.Mult():
            return one * other
        case ast.FloorDiv() if other:
            return one // other
        case ast.Pow() if 0 <= other < 64 and abs(one) < 1 << 16:
            return int(one**other)
        case ast.LShift() if 0 <= other < 64:
            return one << other
    return None


def _starts(source: str) -> list[int]:
    """The byte that each line begins with."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(node: ast.expr, starts: Sequence[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
