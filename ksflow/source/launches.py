"""The launch plan of a GPU kernel in strong mode: which device functions run, in which order, with which sizes and
data.

    // workspace: at uint8 m * k
    // launch: transpose [cdiv(m, 64), cdiv(k, 64)] [256] (a, at, m, k)
    // launch: gemm [cdiv(n, BN), cdiv(m, BM)] [256] shared 4 * (BM + BN) * 128 (at, b, c, m, n, k) if k >= 512
    // require: 4 * (BM + BN) * 128 <= 232448
    // dispatch: if m <= 1024 and k >= 4096: BM=64 BN=128

`pdl` after a block ([256] pdl shared ...) is CUDA's programmatic dependent launch: the launch may begin before the
previous one has ended, and the kernel must execute griddepcontrol.wait before it reads that one's results.

    // tensormap: b_map b uint8 [k, n] box [128, BN] swizzle 128

describes an array for CUDA's bulk tensor copies (TMA): a launch that names `b_map` gets a CUtensorMap, which the kernel
declares as `const __grid_constant__ CUtensorMap`. Extents and box begin with the contiguous dimension; `strides [...]`
after the extents, in elements, are those of the other dimensions, if there are gaps; `l2 128` at the end sets how many
bytes the L2 fetches at a time.

Triton uses `#`, `warps EXPR stages EXPR` in place of the block, and `NAME=EXPR` for a constexpr parameter. Expressions
may name a case's numbers and the numbers that the source declares at top level. The source is not executed. Not
covered: whether the functions exist, which only a compiler can tell.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ksflow.records import Scalar
from ksflow.source.expressions import LARGEST, Number, calculate, expression, numbers, size
from ksflow.source.tunables import NUMBER, constants, number, read_dispatch, redeclared
from ksflow.source.tunables import launch_lines as lines

Triple = tuple[int, int, int]

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2": 1, "float8_e5m2fnuz": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Dtype of a workspace -> bytes of one element."""
_SWIZZLES = (0, 32, 64, 128)  # swizzle modes of a tensor map, in bytes
_PROMOTIONS = (0, 64, 128, 256)  # L2 fetch sizes of a tensor map's copies, in bytes
_MOST_DIMENSIONS, _LARGEST_EXTENT, _LARGEST_STRIDE, _LARGEST_BOX, _UNIT = 5, 2**32, 2**40 - 1, 256, 16
"""Limits of cuTensorMapEncodeTiled; strides and a box's rows are multiples of _UNIT bytes."""
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_WARPS = 1024, 32
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


@dataclass(frozen=True)
class LaunchPlan:
    """All launch lines of a source, in order; sizes and conditions are expressions."""

    constants: Mapping[str, Number]  # declared by the source
    workspaces: tuple[tuple[str, str, str], ...]
    """Name, dtype, elements: device memory of a case, uninitialised, and kept between calls."""
    launches: tuple[Launch, ...]
    requires: tuple[str, ...]
    dispatches: tuple[tuple[str, Mapping[str, str]], ...]
    """A condition, and values of constants for the cases where it holds."""
    tensor_maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class CaseWorkspace:
    name: str
    dtype: str
    elements: int

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class CaseTensorMap:
    """A tensor map of one case, in the numbers that cuTensorMapEncodeTiled takes."""

    place: tuple[str, int]  # ("arg", index into the problem's tensors) or ("workspace", index)
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, of every dimension but the first
    box: tuple[int, ...]
    swizzle: int
    l2: int


@dataclass(frozen=True)
class CaseLaunch:
    """A launch of one case. `dataclasses.asdict` gives JSON values."""

    kernel: str
    grid: Triple
    block: Triple  # (0, 0, 0) for Triton
    shared: int
    warps: int  # 0 except for Triton, like `stages`
    stages: int
    args: tuple[tuple[str, int], ...]
    """("arg", index into the problem's), ("workspace", index), ("tensor_map", index) or ("int", value)."""
    constants: Mapping[str, Number]
    pdl: bool  # whether it may begin before the previous launch has ended; False for the first of a case


@dataclass(frozen=True)
class CasePlan:
    """The launches of one case."""

    variant: int  # index into the values that `plan_cases` returns
    workspaces: tuple[CaseWorkspace, ...]
    launches: tuple[CaseLaunch, ...]
    tensor_maps: tuple[CaseTensorMap, ...] = ()  # those that the launches name


def parse(text: str, language: str = "cuda") -> LaunchPlan | None:
    """Return the launch plan of a source; None without a launch line. Raises ValueError, which names the line."""
    parsed: dict[str, list[Any]] = {kind: [] for kind in _READERS}
    declared = constants(text)
    for kind, rest in lines(text):
        with _naming(f"{kind}: {rest}"):
            parsed[kind].append(_READERS[kind](rest))
            if kind == "launch" and parsed[kind][-1].pdl and language != "cuda":
                raise ValueError(f"`pdl` is for CUDA C++ alone, not for {language}: leave it out")
            if kind == "tensormap" and language != "cuda":
                raise ValueError(f"tensor maps are for CUDA C++ alone, not for {language}: leave the line out")
    if not parsed["launch"]:
        return None
    for when, values in parsed["dispatch"]:
        if unknown := values.keys() - declared.keys():
            raise ValueError(
                f"dispatch: if {when}: {min(unknown)} is no number that the source declares at top level; "
                f"those are: {', '.join(declared) or 'none'}"
            )
    return LaunchPlan(declared, *(tuple(parsed[kind]) for kind in _READERS))


@contextmanager
def _naming(line: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{line}: {error}") from error


def with_constants(text: str, values: Mapping[str, str]) -> str:
    """Return the source with other values of its constants, and blank lines in place of its plan."""
    return "\n".join("" if lines(line) else redeclared(line, values) for line in text.split("\n"))


def plan_cases(
    plan: LaunchPlan, cases: Mapping[str, Mapping[str, Scalar]], args: Sequence[str]
) -> tuple[list[dict[str, str]], dict[str, CasePlan]]:
    """Return the distinct sets of values (for `with_constants`), and a plan for each case by its name.

    cases: name -> parameters; args: the names of the problem's tensors. Raises ValueError for an expression that cannot
    be computed or a `require` that does not hold.
    """
    variants: list[dict[str, str]] = []
    plans: dict[str, CasePlan] = {}
    for name, params in cases.items():
        sizes = numbers(params)
        if hidden := sizes.keys() & plan.constants.keys():
            raise ValueError(f"the constant {min(hidden)} has the name of a parameter of the cases; rename it")
        known = {**plan.constants, **sizes}
        values: dict[str, str] = {}  # of the first matching dispatch, unless declared anyway
        for when, assigned in plan.dispatches:
            with _naming(f"dispatch: if {when}"):
                if calculate(when, known):
                    values = {key: value for key, value in assigned.items() if number(value) != known[key]}
                    break
        if values not in variants:
            variants.append(values)
        known |= {key: number(value) for key, value in values.items()}
        for require in plan.requires:
            with _naming("require"):
                held = calculate(require, known)
            if not held:
                used = [word for word in dict.fromkeys(_WORD.findall(require)) if word in plan.constants]
                shown = [f"{word}={values.get(word, plan.constants[word])}" for word in used]
                raise ValueError(f"require: {require} does not hold ({', '.join([*shown, f'case {name}'])})")
        plans[name] = _plan(plan, variants.index(values), known, args)
        if (first := plans[name].launches[0]).pdl:
            raise ValueError(
                f"launch: {first.kernel}: the first launch of case {name} cannot have `pdl`, it would begin before the "
                "call does; have such cases use a line without it (`if CONDITION`)"
            )
    return variants, plans


def _plan(plan: LaunchPlan, variant: int, known: Mapping[str, Number], args: Sequence[str]) -> CasePlan:
    places = {name: ("arg", index) for index, name in enumerate(args)}
    rooms = []
    for index, (name, dtype, elements) in enumerate(plan.workspaces):
        with _naming(f"workspace: {name}"):
            rooms.append(CaseWorkspace(name, dtype, size(elements, known, 1, LARGEST)))
        if places.setdefault(name, ("workspace", index)) != ("workspace", index):
            raise ValueError(f"workspace: {name} is the name of something else already")
    left = []
    for launch in plan.launches:
        with _naming(f"launch: {launch.line}"):
            if not launch.when or calculate(launch.when, known):
                left.append(launch)
    if not left:
        raise ValueError(f"no launch is left for {', '.join(f'{name}={value}' for name, value in known.items())}")
    named = {name for launch in left for name in launch.args}
    maps: list[CaseTensorMap] = []
    for tmap in plan.tensor_maps:
        with _naming(f"tensormap: {tmap.name}"):
            if tmap.name in places or tmap.name in known:
                raise ValueError(f"{tmap.name} is the name of something else already")
            if tmap.name in named:
                maps.append(_tensor_map(tmap, known, places, rooms))
                places[tmap.name] = ("tensor_map", len(maps) - 1)
    steps = []
    for launch in left:
        with _naming(f"launch: {launch.line}"):
            steps.append(_step(launch, known, places))
    return CasePlan(variant, tuple(rooms), tuple(steps), tuple(maps))


def _tensor_map(
    tmap: TensorMap, known: Mapping[str, Number], places: Mapping[str, tuple[str, int]], rooms: Sequence[CaseWorkspace]
) -> CaseTensorMap:
    place = places.get(tmap.tensor, ("", 0))
    if place[0] not in ("arg", "workspace"):
        raise ValueError(f"{tmap.tensor} is neither a tensor nor a workspace")
    item = ITEM_BYTES[tmap.dtype]
    extents = tuple(size(extent, known, 1, _LARGEST_EXTENT) for extent in tmap.extents)
    box = tuple(size(side, known, 1, _LARGEST_BOX) for side in tmap.box)
    packed = accumulate(extents[:-1], lambda before, extent: before * extent)
    steps = [size(step, known, 1, _LARGEST_STRIDE) for step in tmap.strides] if tmap.strides else [*packed]
    swizzle, promotion = calculate(tmap.swizzle, known), calculate(tmap.l2, known)
    if swizzle not in _SWIZZLES or promotion not in _PROMOTIONS:
        raise ValueError(f"swizzle is 0, 32, 64 or 128 bytes and l2 0, 64, 128 or 256, not {swizzle} and {promotion}")
    strides = tuple(step * item for step in steps)
    if wrong := [step for step in strides if step % _UNIT or step > _LARGEST_STRIDE]:
        raise ValueError(
            f"a stride of {wrong[0]} bytes cannot be had, only multiples of {_UNIT} below 2**40; give padded rows a "
            "workspace, or `strides [...]`"
        )
    row = box[0] * item
    if row % _UNIT or (swizzle and row > swizzle):
        most = f", and at most {swizzle} with `swizzle {swizzle}`" if swizzle else ""
        raise ValueError(f"a row of the box has {row} bytes; it has to be a multiple of {_UNIT}{most}")
    if place[0] == "workspace":
        last = sum((extent - 1) * step for extent, step in zip(extents, (item, *strides), strict=True))
        if last + item > rooms[place[1]].bytes:
            raise ValueError(f"reaches {last + item} bytes into {tmap.tensor}, which has {rooms[place[1]].bytes}")
    return CaseTensorMap(place, tmap.dtype, extents, strides, box, int(swizzle), int(promotion))


def _step(launch: Launch, known: Mapping[str, Number], places: Mapping[str, tuple[str, int]]) -> CaseLaunch:
    grid = _triple(launch.grid, known, _LARGEST_GRID)
    block: Triple = (0, 0, 0)
    warps = stages = 0
    if launch.block:
        block = _triple(launch.block, known, (_MOST_THREADS,) * 3)
        if (threads := math.prod(block)) > _MOST_THREADS:
            raise ValueError(f"a block has at most {_MOST_THREADS} threads, not {threads}")
    else:
        warps = size(launch.warps, known, 1, _MOST_WARPS)
        stages = size(launch.stages, known, 0, _MOST_THREADS)
        if warps & (warps - 1):
            raise ValueError(f"the number of warps is a power of two, not {warps}")
    return CaseLaunch(
        launch.kernel,
        grid,
        block,
        size(launch.shared, known, 0, LARGEST),
        warps,
        stages,
        tuple(places.get(arg) or ("int", _number(arg, known, places)) for arg in launch.args),
        {name: calculate(value, known) for name, value in launch.constants.items()},
        launch.pdl,
    )


def _number(arg: str, known: Mapping[str, Number], places: Iterable[str]) -> int:
    """Return the value of an argument that is no tensor. Raises ValueError, which lists the known names."""
    if arg.isidentifier() and arg not in known:
        raise ValueError(f"{arg!r} is not known; known are {', '.join([*places, *known])}")
    return size(arg, known, -LARGEST, LARGEST)


def _triple(sizes: Sequence[str], known: Mapping[str, Number], most: Triple) -> Triple:
    x, y, z = (size(length, known, 1, largest) for length, largest in zip((*sizes, "1", "1"), most, strict=False))
    return x, y, z


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
    """Return the expressions of a text that is a list in brackets. Raises ValueError."""
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
    """Return the one to three expressions in the leading brackets, and the text after them. Raises ValueError."""
    end = text.find("]")
    parts = _parts(text[1:end]) if text.startswith("[") and end > 0 else []
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"the {what} is not a list of one to three sizes: [x, y, z]")
    return tuple(map(expression, parts)), text[end + 1 :].strip()


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets. Raises ValueError."""
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


_READERS: dict[str, Callable[[str], Any]] = {
    "workspace": _workspace,
    "launch": _launch,
    "require": expression,
    "dispatch": _dispatch,
    "tensormap": _described,
}  # kind of line -> parser of its rest, which raises ValueError
