"""Arithmetic expressions for sizes, conditions and work, over a case's numbers and a source's constants.

Evaluated by a walk over Python's syntax tree, without executing code. A condition is 1 or 0. The branch of a
conditional that is not taken is not computed, so `m if k else n // k` works for k = 0.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ksflow.records import Scalar

Number = int | float

LARGEST = 1 << 63  # limit of sizes and arguments
LONGEST = 500
_LARGEST_POWER = 64
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": lambda x, y: -(-x // y),
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "abs": abs,
}
_ALLOWED = f"+ - * / // % ** comparisons, and, or, not, X if C else Y, {', '.join(_FUNCTIONS)}"


def expression(text: str) -> str:
    """Return the stripped text if it is a valid expression. Raises ValueError."""
    _parsed(text.strip())
    return text.strip()


def numbers(params: Mapping[str, Scalar]) -> dict[str, Number]:
    """Return the parameters of a case that an expression can name."""
    return {name: value for name, value in params.items() if isinstance(value, int | float)}


def calculate(expression: str, names: Mapping[str, Number]) -> Number:
    """Return the value of an expression; a condition is 1 or 0. Raises ValueError."""
    try:
        value = _value(_parsed(expression), names)
    except (ArithmeticError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} cannot be computed: {error}") from error
    return int(value) if isinstance(value, bool) else value


def size(expression: str, known: Mapping[str, Number], least: int, most: int) -> int:
    """Return the value of an expression that must be an integer within bounds. Raises ValueError."""
    value = calculate(expression, known)
    if not isinstance(value, int):
        raise ValueError(f"{expression!r} is {value:g}, not a whole number; // divides without rest")
    if not least <= value <= most:
        raise ValueError(f"{expression!r} is {value}, which is not within {least} and {most}")
    return value


@lru_cache(4096)
def _parsed(expression: str) -> ast.expr:
    if len(expression) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    try:
        body = ast.parse(expression, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"{expression!r} is not an expression") from error
    for node in ast.walk(body):
        if isinstance(node, ast.expr) and not _allowed(node):
            raise ValueError(f"{ast.get_source_segment(expression, node)!r} is not allowed; {_ALLOWED} are")
    return body


def _allowed(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name() | ast.BoolOp() | ast.IfExp():
            return True
        case ast.UnaryOp(op=op) | ast.BinOp(op=op):
            return type(op) in _OPERATORS
        case ast.Compare(ops=ops):
            return all(type(op) in _OPERATORS for op in ops)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in _FUNCTIONS
    return False


def _value(node: ast.expr, names: Mapping[str, Number]) -> Number:
    """Return the value of an allowed node, without evaluating branches that are not taken."""
    match node:
        case ast.Constant(value=number):
            value = number
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"{name!r} is not known; known are {', '.join(names)}")
            return names[name]
        case ast.BoolOp(op=op, values=parts):
            return (any if isinstance(op, ast.Or) else all)(_value(part, names) for part in parts)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, names) else other, names)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(side, names) for side in (left, *others)]
            return all(_OPERATORS[type(op)](*pair) for op, pair in zip(ops, pairwise(sides), strict=True))
        case ast.UnaryOp(op=op, operand=operand):
            value = _OPERATORS[type(op)](_value(operand, names))
        case ast.BinOp(op=operation, left=left, right=right):
            first, second = _value(left, names), _value(right, names)
            if isinstance(operation, ast.Pow) and not 0 <= second <= _LARGEST_POWER:
                raise ValueError(f"{ast.unparse(node)!r} has an exponent that is not within 0 and {_LARGEST_POWER}")
            value = _OPERATORS[type(operation)](first, second)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            value = _FUNCTIONS[name](*(_value(argument, names) for argument in arguments))
    if not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise ValueError(f"{ast.unparse(node)!r} is no number within 64 bits")
    return value
