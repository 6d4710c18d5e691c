"""The cases of an imported problem: names, each once, whole numbers cut to a cap where a machine needs that."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from ksflow.errors import ConfigError
from ksflow.formats import sizes
from ksflow.records import Json

Params = Mapping[str, Any]
SeededParams = tuple[Params, int]  # (params, seed) of a case
CAPS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 1 << 15, 1 << 17, 1 << 20, 1 << 23)
"""Sizes above which a CPU's cases may be cut, smallest first."""
_LETTERS = 8  # of a parameter that is long and says little


def parse_cap(cap: int | str | None) -> int | None:
    """The cap that a user asked for; none where what fits decides. Raises ConfigError."""
    if cap in (None, "auto"):
        return None
    if not str(cap).isdecimal() or int(cap) < 1:
        raise ConfigError(f"problem.cap={cap}; it is auto, null (sizes as they are) or a whole number from 1")
    return int(cap)


def case_name(params: Params) -> str:
    """A case's name, from its parameters."""
    if "cap" in params:
        return f"sizes up to {params['cap']}" if params["cap"] else "original"
    return " ".join(f"{key}={value}" for key, value in params.items()) or "case"


def build_cases(
    tests: Sequence[SeededParams],
    benchmarks: Sequence[SeededParams],
    cap: int | None,
    optional: str = "",
    fixed: Sequence[int] = (),
) -> list[Json]:
    """All cases under a cap, each once, the tests first. optional, fixed: see `ParsedProblem`."""
    cases: list[Json] = []
    for test, chosen in ((True, tests), (False, benchmarks)):
        names: dict[str, str] = {}
        for params, seed in chosen:
            small = cap_params(params, cap, fixed)
            name, identity = case_name(small), repr((small, seed))
            if identity in names.values():
                continue
            if name in names and any(isinstance(value, bool) for value in small.values()):
                name += " typed"  # the words for the same truth values have the name
            if name in names:
                if small != params:  # only its size set it apart
                    continue
                name += f" seed={seed}"
            names[name] = identity
            cases.append({"name": name, "params": small, "seed": seed, "test": test})
    return _with_short_names(cases, optional) if optional else cases


def _with_short_names(cases: Sequence[Json], optional: str) -> list[Json]:
    """Under names without that parameter, where they still tell the cases apart, else with its first letters."""

    def name(case: Json, letters: int | None) -> str:
        rest = {key: value for key, value in case["params"].items() if key != optional}
        words = (case_name(rest) if rest else "", str(case["params"].get(optional, ""))[:letters])
        return " ".join(filter(None, words))

    def shortest(case: Json) -> str:
        for letters in (0, _LETTERS):
            others = [name(other, letters) for other in cases if other["test"] == case["test"]]
            if (short := name(case, letters)) and others.count(short) == 1:
                return short
        return name(case, None)

    return [{**case, "name": shortest(case)} for case in cases]


def cap_params(params: Params, cap: int | None, fixed: Sequence[int] = ()) -> Json:
    """With whole numbers as `sizes.cut_sizes` makes them under a cap. One with a `cap` reads that itself."""
    if cap is None:
        return dict(params)
    if "cap" in params:
        return {**params, "cap": cap}
    smaller = iter(sizes.cut_sizes(_sizes(params), cap, fixed))

    def replaced(value: Any) -> Any:
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return next(smaller) if type(value) is int else value

    return {key: replaced(value) for key, value in params.items()}


def merged_sizes(cases: Sequence[SeededParams], cap: int | None, fixed: Sequence[int]) -> list[str]:
    """Sizes that differ in a case and are the same under a cap, in words."""
    lines: dict[str, None] = {}
    for params, _ in cases:
        if cap is not None and "cap" not in params:
            numbers = _sizes(params)
            lines |= dict.fromkeys(sizes.describe_merged(numbers, sizes.cut_sizes(numbers, cap, fixed)))
    return [*lines]


def _sizes(params: Params) -> list[tuple[str, int]]:
    """The whole numbers of a case, in order, each with its parameter's name."""

    def numbers(value: Any) -> list[int]:
        if isinstance(value, list):
            return [number for item in value for number in numbers(item)]
        return [value] if type(value) is int else []

    return [(key, number) for key, value in params.items() for number in numbers(value)]


def parameters(takes: ast.arguments) -> dict[str, ast.expr | None]:
    """What a function takes, in order, and what each is when it is left out; None where it may not be."""
    places = (*takes.posonlyargs, *takes.args)
    defaults = (*[None] * (len(places) - len(takes.defaults)), *takes.defaults, *takes.kw_defaults)
    return {arg.arg: value for arg, value in zip((*places, *takes.kwonlyargs), defaults, strict=True)}
