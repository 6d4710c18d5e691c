"""Sizes that a source names at its top level, and the same source with other ones. The source is parsed, never run.

`batch_size = 8192 * 2` names one; what is computed from names follows by itself.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

Edit = Sequence[Any]
"""[first byte, end, value]: a whole number, which a cap may lower, or the text that stands there in any case."""


def constants(source: str) -> dict[str, ast.expr]:
    """Names that are assigned at top level, alone or in a row -> what they are assigned. SyntaxError."""
    return assigned(ast.parse(source))


def assigned(module: ast.Module) -> dict[str, ast.expr]:
    """The same of what was parsed."""
    return {name: value for node in module.body for name, value in _assigned(node)}


def _assigned(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [(name, value)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            return [(name.id, value) for name, value in zip(names, values, strict=True) if isinstance(name, ast.Name)]
    return []


def edits(source: str, overrides: Mapping[str, Any]) -> list[Edit]:
    """Where its whole numbers are, and what `overrides` puts for a name in place of what is there. SyntaxError."""
    starts = _starts(source)
    found: list[Edit] = []
    for name, value in constants(source).items():
        if name in overrides:
            found.append([*_span(value, starts), repr(overrides[name])])
        else:
            found += [[*_span(node, starts), number] for node, number in _numbers(value)]
    return sorted(found, key=lambda edit: int(edit[0]))


def resized(source: str, edits: Sequence[Edit], cap: int) -> str:
    """The source after the edits, with whole numbers no larger than `cap`; 0 leaves them as they are."""
    body = source.encode()
    for begin, end, value in reversed(edits):
        if isinstance(value, str):
            body = body[:begin] + value.encode() + body[end:]
        elif cap and value > cap:
            body = body[:begin] + str(cap).encode() + body[end:]
    return body.decode()


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
