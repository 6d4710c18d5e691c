"""The cases of an imported problem: names, each once, whole numbers cut to a cap where a machine needs that."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ksflow.errors import ConfigError
from ksflow.formats import sizes
from ksflow.problem.loader import suggest
from ksflow.records import Case, Json

Params = Mapping[str, Any]
Chosen = tuple[Params, int]
"""(params, seed) of a case."""
CAPS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 1 << 15, 1 << 17, 1 << 20, 1 << 23)
"""Sizes above which a CPU's cases may be cut, smallest first."""
_LETTERS = 8
"""Of a parameter that is long and says little."""


def ladder(device: str, cap: int | str | None) -> list[int | None]:
    """The caps that may be tried."""
    return [*CAPS, None] if cap == "auto" and device == "cpu" else [number(cap)]


def number(cap: int | str | None) -> int | None:
    """The cap that was asked for; none where what fits decides. ConfigError."""
    if cap in (None, "auto"):
        return None
    if not str(cap).isdecimal() or int(cap) < 1:
        raise ConfigError(f"problem.cap={cap}; it is auto, null (sizes as they are) or a whole number from 1")
    return int(cap)


def named(params: Params) -> str:
    """A case's name, from its parameters."""
    if "cap" in params:
        return f"sizes up to {params['cap']}" if params["cap"] else "original"
    return " ".join(f"{key}={value}" for key, value in params.items()) or "case"


def listed(
    tests: Sequence[Chosen],
    benchmarks: Sequence[Chosen],
    cap: int | None,
    quiet: str = "",
    fixed: Sequence[int] = (),
) -> list[Json]:
    """All cases under a cap, each once, the tests first. quiet, fixed: see `ParsedProblem`."""
    made: list[Json] = []
    for test, cases in ((True, tests), (False, benchmarks)):
        names: dict[str, str] = {}
        for params, seed in cases:
            small = capped(params, cap, fixed)
            name = _apart(small, seed, names, cut=small != params)
            if name:
                names[name] = repr((small, seed))
                made.append({"name": name, "params": small, "seed": seed, "test": test})
    return _shortened(made, quiet) if quiet else made


def _apart(params: Params, seed: int, names: Mapping[str, str], cut: bool) -> str:
    """A name that no other case has; empty for a case that is there already, or that only its size set apart."""
    name = named(params)
    if repr((params, seed)) in names.values():
        return ""
    if name in names and any(isinstance(value, bool) for value in params.values()):
        name += " typed"  # the words for the same truth values have the name
    return name if name not in names else "" if cut else f"{name} seed={seed}"


def _shortened(cases: Sequence[Json], quiet: str) -> list[Json]:
    """Under names without that parameter, where they still tell the cases apart, else with its first letters."""

    def short(case: Json, letters: int | None) -> str:
        rest = {key: value for key, value in case["params"].items() if key != quiet}
        return " ".join(filter(None, (named(rest) if rest else "", str(case["params"].get(quiet, ""))[:letters])))

    def alone(case: Json, name: str, letters: int) -> bool:
        return (
            bool(name) and [short(other, letters) for other in cases if other["test"] == case["test"]].count(name) == 1
        )

    def best(case: Json) -> str:
        names = {letters: short(case, letters) for letters in (0, _LETTERS)}
        return next((name for letters, name in names.items() if alone(case, name, letters)), short(case, None))

    return [{**case, "name": best(case)} for case in cases]


def capped(params: Params, cap: int | None, fixed: Sequence[int] = ()) -> Json:
    """With whole numbers as `sizes.cut` makes them under a cap. One with a `cap` reads that itself."""
    if cap is None:
        return dict(params)
    if "cap" in params:
        return {**params, "cap": cap}
    smaller = iter(sizes.cut([*_numbers(params)], cap, fixed))

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(item) for item in value]
        return next(smaller) if _whole(value) else value

    return {key: placed(value) for key, value in params.items()}


def merged(tests: Sequence[Chosen], benchmarks: Sequence[Chosen], cap: int | None, fixed: Sequence[int]) -> list[str]:
    """Sizes that differ in a case and are the same under a cap, in words."""
    said: dict[str, None] = {}
    for params, _ in (*tests, *benchmarks):
        numbers = [*_numbers(params)]
        if cap is not None and "cap" not in params:
            said |= dict.fromkeys(sizes.alike(numbers, sizes.cut(numbers, cap, fixed)))
    return [*said]


def _numbers(params: Params) -> Iterator[tuple[str, int]]:
    """The whole numbers of a case, in order, each with its parameter's name."""

    def inside(value: Any) -> Iterator[int]:
        if isinstance(value, list):
            for item in value:
                yield from inside(item)
        elif _whole(value):
            yield value

    return ((key, number) for key, value in params.items() for number in inside(value))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole_numbers(benchmarks: Sequence[Json]) -> tuple[str, ...]:
    """The parameters that are whole numbers in every case."""
    first, *rest = [case["params"] for case in benchmarks]
    return tuple(
        key for key in first if key.isidentifier() and all(type(params.get(key)) is int for params in (first, *rest))
    )


def record(case: Json) -> Case:
    """As the problem has it."""
    return Case(case["name"], case["params"], case["seed"])


def agree(text: str, cases: Any, where: str) -> None:
    """ConfigError where a user's cases are not what the text's `generate_input` takes. None are fine."""
    if cases is None:
        return
    if isinstance(cases, str | Mapping) or not isinstance(cases, Sequence):
        raise ConfigError(f"{where}: {cases!r} is no list of cases; write [{{NAME: VALUE, seed: N}}]")
    takes = _signature(text)
    for case in cases:
        if not isinstance(case, Mapping):
            raise ConfigError(f"{where}: {case!r} is no case; a case is {{NAME: VALUE, seed: N}}")
        if takes:
            _agrees(takes, case, where)


def _agrees(takes: ast.arguments, case: Params, where: str) -> None:
    usual = parameters(takes)
    valid = {"seed", *usual}
    if unknown := [str(key) for key in case if key not in valid and not takes.kwarg]:
        raise ConfigError(f"{where}: generate_input takes no {unknown[0]!r}; {suggest(unknown[0], valid)}")
    if lost := [name for name, value in usual.items() if value is None and name not in {"seed", *case}]:
        raise ConfigError(f"{where}: a case lacks {', '.join(lost)}; generate_input takes {', '.join(usual)}")
    if not isinstance(case.get("seed", 0), int):
        raise ConfigError(f"{where}: seed {case['seed']!r} is no whole number")


def parameters(takes: ast.arguments) -> dict[str, ast.expr | None]:
    """What a function takes, in order, and what each is when it is left out; None where it may not be."""
    places = (*takes.posonlyargs, *takes.args)
    defaults = (*[None] * (len(places) - len(takes.defaults)), *takes.defaults, *takes.kw_defaults)
    return {one.arg: value for one, value in zip((*places, *takes.kwonlyargs), defaults, strict=True)}


def _signature(text: str) -> ast.arguments | None:
    """Of the text's `generate_input`; None where the text does not say it."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # running it says what is wrong
        return None
    found = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "generate_input")
    return next((node.args for node in found), None)
