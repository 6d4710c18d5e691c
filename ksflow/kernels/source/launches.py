"""The launch plan of a GPU kernel in strong mode: which device functions run, in which order, with which sizes and
data.

    // workspace: at uint8 m * k
    // launch: gemm [cdiv(n, BN), cdiv(m, BM)] [256] shared 4 * (BM + BN) * 128 (at, b, c, m, n, k) if k >= 512
    // require: 4 * (BM + BN) * 128 <= 232448
    // dispatch: if m <= 1024 and k >= 4096: BM=64 BN=128
    // tensormap: b_map b uint8 [k, n] box [128, BN] swizzle 128

`contract.txt` has the grammar, docs/gpu.md explains it. The source is not executed. Not covered: whether the functions
exist, which only a compiler can tell.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ksflow.kernels.source.expressions import LARGEST, Number, calculate, numbers, size
from ksflow.kernels.source.launch_lines import ITEM_BYTES, READERS, Launch, TensorMap
from ksflow.kernels.source.tunables import constants, number, redeclare
from ksflow.kernels.source.tunables import launch_lines as lines
from ksflow.records import Scalar

Triple = tuple[int, int, int]

_SWIZZLES = (0, 32, 64, 128)  # swizzle modes of a tensor map, in bytes
_PROMOTIONS = (0, 64, 128, 256)  # L2 fetch sizes of a tensor map's copies, in bytes
_LARGEST_EXTENT, _LARGEST_STRIDE, _LARGEST_BOX, _UNIT = 2**32, 2**40 - 1, 256, 16
"""Limits of cuTensorMapEncodeTiled; strides and a box's rows are multiples of _UNIT bytes."""
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_WARPS = 1024, 32
_WORD = re.compile(r"[A-Za-z_]\w*")


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
        """The size of the workspace in bytes."""
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
    parsed: dict[str, list[Any]] = {kind: [] for kind in READERS}
    declared = constants(text)
    for kind, rest in lines(text):
        with _naming(f"{kind}: {rest}"):
            parsed[kind].append(READERS[kind](rest))
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
    return LaunchPlan(declared, *(tuple(parsed[kind]) for kind in READERS))


@contextmanager
def _naming(line: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{line}: {error}") from error


def with_constants(text: str, values: Mapping[str, str]) -> str:
    """Return the source with other values of its constants, and blank lines in place of its plan."""
    return "\n".join("" if lines(line) else redeclare(line, values) for line in text.split("\n"))


def plan_cases(
    plan: LaunchPlan, cases: Mapping[str, Mapping[str, Scalar]], args: Sequence[str]
) -> tuple[list[dict[str, str]], dict[str, CasePlan]]:
    """Return the distinct sets of values (for `with_constants`), and a plan for each case by its name; `args` names the
    problem's tensors. Raises ValueError for an expression that cannot be computed or a `require` that does not hold.
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
