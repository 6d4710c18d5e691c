"""The launch plan of a GPU kernel in strong mode: which device functions run, in what order, how large, on what.

    // workspace: at uint8 m * k
    // launch: transpose [cdiv(m, 64), cdiv(k, 64)] [256] (a, at, m, k)
    // launch: gemm [cdiv(n, BN), cdiv(m, BM)] [256] shared 4 * (BM + BN) * 128 (at, b, c, m, n, k) if k >= 512
    // require: 4 * (BM + BN) * 128 <= 232448
    // dispatch: if m <= 1024 and k >= 4096: BM=64 BN=128

With `#` for Triton, where `warps EXPR stages EXPR` stands for the block and `NAME=EXPR` is a constexpr parameter.
Expressions are over a case's numbers and the numbers that the source declares at top level. Text in, records out:
nothing is run. Not covered: whether the functions exist, which only a compiler can tell.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ksflow.records import Scalar
from ksflow.source.expressions import LARGEST, Number, calculate, size
from ksflow.source.launch_lines import ITEM_BYTES, READERS, Dispatch, Launch, Workspace
from ksflow.source.tunables import constants, number, redeclared
from ksflow.source.tunables import launch_lines as lines

Triple = tuple[int, int, int]

_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_WARPS = 1024, 32
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class LaunchPlan:
    """All launch lines of a source, in their order."""

    constants: Mapping[str, Number]
    """What the source declares."""
    workspaces: tuple[Workspace, ...]
    launches: tuple[Launch, ...]
    requires: tuple[str, ...]
    dispatches: tuple[Dispatch, ...]


@dataclass(frozen=True)
class CaseWorkspace:
    """A workspace of one case."""

    name: str
    dtype: str
    elements: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class CaseLaunch:
    """A launch of one case. Plain data: `dataclasses.asdict` gives what JSON can hold."""

    kernel: str
    grid: Triple
    block: Triple
    """(0, 0, 0) for Triton."""
    shared: int
    warps: int
    """0 but for Triton, like `stages`."""
    stages: int
    args: tuple[tuple[str, int], ...]
    """("arg", index into the problem's), ("workspace", index) or ("int", value)."""
    constants: Mapping[str, Number]


@dataclass(frozen=True)
class CasePlan:
    """What runs for one case."""

    variant: int
    """Index into the values that `plan_cases` returns."""
    workspaces: tuple[CaseWorkspace, ...]
    launches: tuple[CaseLaunch, ...]


def parse(text: str) -> LaunchPlan | None:
    """The launch plan of a source; None where it has no launch line. ValueError names the bad line and why."""
    found: dict[str, list[Any]] = {kind: [] for kind in READERS}
    declared = constants(text)
    for kind, rest in lines(text):
        try:
            found[kind].append(READERS[kind](rest))
        except ValueError as error:
            raise ValueError(f"{kind}: {rest}: {error}") from error
    if not found["launch"]:
        return None
    for dispatch in found["dispatch"]:
        if unknown := dispatch.values.keys() - declared.keys():
            raise ValueError(
                f"dispatch: if {dispatch.when}: {min(unknown)} is no number that the source declares at top level; "
                f"those are: {', '.join(declared) or 'none'}"
            )
    return LaunchPlan(declared, *(tuple(found[kind]) for kind in READERS))


def with_constants(text: str, values: Mapping[str, str]) -> str:
    """The source with other values where it declares constants, and blank lines for its plan."""
    return "\n".join("" if lines(line) else redeclared(line, values) for line in text.split("\n"))


def plan_cases(
    plan: LaunchPlan, cases: Mapping[str, Mapping[str, Scalar]], args: Sequence[str]
) -> tuple[list[dict[str, str]], dict[str, CasePlan]]:
    """The distinct sets of values (`with_constants` takes them), and a plan for each case by its name.

    `cases`: a case's name -> its parameters; `args`: the names of the problem's tensors. ValueError where something
    cannot be computed or a `require` does not hold.
    """
    variants: list[dict[str, str]] = []
    made: dict[str, CasePlan] = {}
    for name, params in cases.items():
        numbers = {key: value for key, value in params.items() if isinstance(value, int | float)}
        if hidden := numbers.keys() & plan.constants.keys():
            raise ValueError(f"the constant {min(hidden)} has the name of a parameter of the cases; rename it")
        known = {**plan.constants, **numbers}
        chosen = next(
            (one for one in plan.dispatches if _calculated(f"dispatch: if {one.when}", one.when, known)), None
        )
        assigned = chosen.values if chosen else {}  # of the first that matches, beside what is declared anyway
        values = {key: value for key, value in assigned.items() if number(value) != plan.constants[key]}
        if values not in variants:
            variants.append(values)
        known = {**plan.constants, **{key: number(value) for key, value in values.items()}, **numbers}
        for require in plan.requires:
            if not _calculated("require", require, known):
                used = [word for word in dict.fromkeys(_WORD.findall(require)) if word in plan.constants]
                shown = [f"{word}={values.get(word, plan.constants[word])}" for word in used]
                raise ValueError(f"require: {require} does not hold ({', '.join([*shown, f'case {name}'])})")
        made[name] = _plan(plan, variants.index(values), known, args)
    return variants, made


def _calculated(line: str, condition: str, known: Mapping[str, Number]) -> Number:
    try:
        return calculate(condition, known)
    except ValueError as error:
        raise ValueError(f"{line}: {error}") from error


def _plan(plan: LaunchPlan, variant: int, known: Mapping[str, Number], args: Sequence[str]) -> CasePlan:
    places = {name: ("arg", index) for index, name in enumerate(args)}
    rooms = []
    for index, space in enumerate(plan.workspaces):
        if space.name in places:
            raise ValueError(f"workspace: {space.name} is the name of something else already")
        places[space.name] = ("workspace", index)
        try:
            rooms.append(CaseWorkspace(space.name, space.dtype, size(space.elements, known, 1, LARGEST)))
        except ValueError as error:
            raise ValueError(f"workspace: {space.name}: {error}") from error
    steps = []
    for launch in plan.launches:
        try:
            if not launch.when or calculate(launch.when, known):
                steps.append(_step(launch, known, places))
        except ValueError as error:
            raise ValueError(f"launch: {launch.line}: {error}") from error
    if not steps:
        raise ValueError(f"no launch is left for {', '.join(f'{name}={value}' for name, value in known.items())}")
    return CasePlan(variant, tuple(rooms), tuple(steps))


def _step(launch: Launch, known: Mapping[str, Number], places: Mapping[str, tuple[str, int]]) -> CaseLaunch:
    grid = _triple(launch.grid, known, _LARGEST_GRID)
    block: Triple = (0, 0, 0)
    warps = stages = 0
    if launch.block:
        block = _triple(launch.block, known, (_MOST_THREADS,) * 3)
        if block[0] * block[1] * block[2] > _MOST_THREADS:
            raise ValueError(f"a block has at most {_MOST_THREADS} threads, not {block[0] * block[1] * block[2]}")
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
        tuple(places.get(arg) or ("int", size(arg, known, -LARGEST, LARGEST)) for arg in launch.args),
        {name: calculate(value, known) for name, value in launch.constants.items()},
    )


def _triple(sizes: Sequence[str], known: Mapping[str, Number], most: Triple) -> Triple:
    x, y, z = (size(length, known, 1, largest) for length, largest in zip((*sizes, "1", "1"), most, strict=False))
    return x, y, z
