"""Parsers of the lines that declare how a GPU kernel is launched (`launches`): each returns a record of expressions."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ksflow.kernels.source.expressions import expression
from ksflow.kernels.source.tunables import NUMBER, read_dispatch

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2": 1, "float8_e5m2fnuz": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Dtype of a workspace -> bytes of one element."""
_MOST_DIMENSIONS = 5  # of a tensor map
_WORKSPACE = re.compile(r"([A-Za-z_]\w*)\s+(\w+)\s+(.+)")
_DESCRIBED = "NAME TENSOR DTYPE [EXTENTS] strides [STRIDES] box [SIDES] swizzle BYTES l2 BYTES"
_ARRAY = re.compile(r"([A-Za-z_]\w*)\s+([A-Za-z_]\w*)\s+(\w+)\s*(\[.*)")
_NUMBER = re.compile(NUMBER)
_PAIR = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PLACED = re.compile(r"\w+\s*\[[^\]]*\]\s*\[[^\]]*\]\s*pdl\b")
_PLACE = "`pdl` stands once, right after the block: NAME [GRID] [BLOCK] pdl shared BYTES (ARGS) if CONDITION"


@dataclass(frozen=True)
class Launch:
    """One launch, with expressions for its sizes."""

    line: str
    kernel: str
    grid: tuple[str, ...]
    args: tuple[str, ...]
    block: tuple[str, ...] = ()  # threads; empty for Triton
    shared: str = "0"  # bytes of dynamic shared memory; set by Triton's compiler
    warps: str = ""
    stages: str = ""
    constants: Mapping[str, str] = field(default_factory=dict)  # Triton's constexpr parameters
    when: str = ""  # condition on the case; empty for always
    pdl: bool = False  # whether it may begin before the previous launch has ended


@dataclass(frozen=True)
class TensorMap:
    """An array for bulk tensor copies, with expressions for its sizes; the contiguous dimension comes first."""

    name: str
    tensor: str  # a tensor of the problem, or a workspace
    dtype: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]  # in elements, of every dimension but the first; empty for an array without gaps
    box: tuple[str, ...]
    swizzle: str  # bytes: 0, 32, 64 or 128
    l2: str  # least bytes of an L2 fetch: 0, 64, 128 or 256


def _launch(rest: str) -> Launch:
    """Parse a launch line. Raises ValueError, which says where `pdl` belongs if it is misplaced."""
    try:
        return _read(rest)
    except ValueError as error:
        if not re.search(r"\bpdl\b", _PLACED.sub("", rest, count=1)):
            raise
        place = "`pdl` is for CUDA C++ alone" if re.search(r"\bwarps\b", rest) else _PLACE
        raise ValueError(f"{error}; {place}") from error


def _read(rest: str) -> Launch:
    """Parse `NAME [GRID] [BLOCK] pdl shared EXPR (ARGS) if EXPR`, or with `warps EXPR stages EXPR` for the block."""
    head, _, when = _cut(rest, "if")
    head = head.rstrip()
    if not head.endswith(")"):
        raise ValueError("ends without a list of arguments: (a, b, ...)")
    depths = [*accumulate((letter == ")") - (letter == "(") for letter in reversed(head))]
    if 0 not in depths:
        raise ValueError("a bracket is closed that was never opened")
    opening = len(head) - 1 - depths.index(0)  # of the bracket that closes at the end
    sizes, inner = head[:opening].strip(), head[opening + 1 : -1]
    name = _WORD.match(sizes)
    if name is None:
        raise ValueError("begins without the name of a function")
    grid, sizes = _bracketed(sizes[name.end() :].strip(), "grid")
    parts = _parts(inner)
    pairs = [match for match in map(_PAIR.fullmatch, parts) if match]
    plain = [part for part in parts if not _PAIR.fullmatch(part)]
    constants = {match[1]: expression(match[2]) for match in pairs}
    common = (rest, name[0], grid, tuple(map(expression, plain)))
    condition = expression(when) if when else ""
    if sizes.startswith("["):
        if constants:
            raise ValueError(f"{next(iter(constants))}=... is for Triton's constexpr parameters")
        block, sizes = _bracketed(sizes, "block")
        word, _, shared = sizes.partition(" ")
        if pdl := word == "pdl":
            word, _, shared = shared.strip().partition(" ")
        if word not in ("", "shared"):
            raise ValueError(f"{word!r} after the block; `pdl` and `shared EXPR` may stand there, in this order")
        return Launch(*common, block, expression(shared) if word else "0", when=condition, pdl=pdl)
    warps, between, stages = _cut(sizes.removeprefix("warps"), "stages")
    if not sizes.startswith("warps") or not between:
        raise ValueError("after the grid comes a block, [threads], or for Triton `warps EXPR stages EXPR`")
    return Launch(*common, warps=expression(warps), stages=expression(stages), constants=constants, when=condition)


def _workspace(rest: str) -> tuple[str, str, str]:
    match = _WORKSPACE.fullmatch(rest)
    if match is None:
        raise ValueError("is not `NAME DTYPE ELEMENTS`")
    if match[2] not in ITEM_BYTES:
        raise ValueError(f"{match[2]!r} is no dtype; those are: {', '.join(ITEM_BYTES)}")
    return match[1], match[2], expression(match[3])


def _listed(text: str) -> tuple[str, ...]:
    match = re.fullmatch(r"\s*\[(.*)\]\s*", text)
    if match is None:
        raise ValueError(f"is not `{_DESCRIBED}`")
    return tuple(map(expression, _parts(match[1])))


def _described(rest: str) -> TensorMap:
    match = _ARRAY.fullmatch(rest)
    if match is None:
        raise ValueError(f"is not `{_DESCRIBED}`")
    if match[3] not in ITEM_BYTES:
        raise ValueError(f"{match[3]!r} is no dtype; those are: {', '.join(ITEM_BYTES)}")
    head, _, promotion = _cut(match[4], "l2")
    head, _, swizzle = _cut(head, "swizzle")
    array, _, box = _cut(head, "box")
    extents, _, strides = _cut(array, "strides")
    sizes, steps, sides = _listed(extents), _listed(strides or "[]"), _listed(box)
    if not 1 <= len(sizes) <= _MOST_DIMENSIONS or len(sides) != len(sizes):
        raise ValueError(f"wants one to {_MOST_DIMENSIONS} extents and as many sides of a box, contiguous ones first")
    if steps and len(steps) != len(sizes) - 1:
        raise ValueError("wants a stride, in elements, for every extent but the first")
    bytes_ = (expression(text or "0") for text in (swizzle, promotion))
    return TensorMap(match[1], match[2], match[3], sizes, steps, sides, *bytes_)


def _dispatch(rest: str) -> tuple[str, dict[str, str]]:
    when, values = read_dispatch(rest)
    if not values or not all(_WORD.fullmatch(name) and _NUMBER.fullmatch(value) for name, value in values.items()):
        raise ValueError("after the condition come pairs NAME=NUMBER")
    return expression(when), values


def _cut(text: str, word: str) -> tuple[str, str, str]:
    depth = 0
    for match in re.finditer(r"[(\[]|[)\]]|\w+", text):
        depth += (match[0] in "([") - (match[0] in ")]")
        if depth == 0 and match[0] == word:
            return text[: match.start()], word, text[match.end() :]
    return text, "", ""


def _bracketed(text: str, what: str) -> tuple[tuple[str, ...], str]:
    """Return the one to three expressions in the leading brackets, and the text after them."""
    end = text.find("]")
    parts = _parts(text[1:end]) if text.startswith("[") and end > 0 else []
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"the {what} is not a list of one to three sizes: [x, y, z]")
    return tuple(map(expression, parts)), text[end + 1 :].strip()


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise ValueError("a bracket is not closed")
    return [part.strip() for part in (parts if parts[-1].strip() else parts[:-1])]


READERS: dict[str, Callable[[str], Any]] = {
    "workspace": _workspace,
    "launch": _launch,
    "require": expression,
    "dispatch": _dispatch,
    "tensormap": _described,
}
"""Kind of line -> the parser of its rest, which raises ValueError."""
