"""A kernel of the user's own, with a reference beside it: no problem folder is needed.

    problem=kernel problem.kernel=my.cpp problem.reference=my_ref.py problem.cases='[{m: 64}, {m: 512}]'

The reference has `generate_input(**case, seed)` and `ref_kernel(data)`; it may have `check_implementation(data,
output)` or `oracle(data)`, which then decide, and `CASES = [...]`. The kernel is the seed and the baseline.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError
from ksflow.formats.assembly import Fit, ParsedProblem, problem, slug, text
from ksflow.formats.cases import Params, parameters
from ksflow.formats.gpumode.importer import provenance
from ksflow.formats.sizes import assigned
from ksflow.problem.loader import for_gpus
from ksflow.records import DEVICE_LANGUAGES, LANGUAGES, Json, Kernel, Problem, Seed, Target, language
from ksflow.source.contract import device_signature

_NEEDED = ("generate_input", "ref_kernel")
_CHECKS = ("check_implementation", "oracle")
_MOST_S, _MOST_MB = 60.0, 8192
_ENTRY = re.compile(r"\bcustom_kernel\s*\(([^)]*)\)\s*\{", re.DOTALL)
_FOR_GPUS = (".cu", ".hip")
_NOT_SIZES = ("seed", "device")


def load(  # noqa: PLR0913 - what a user may say of a kernel
    kernel: str | None = None,
    reference: str | None = None,
    cases: Sequence[Mapping[str, Any]] | None = None,
    tests: Sequence[Mapping[str, Any]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    target: Target | None = None,
) -> Problem:
    """The problem of making a kernel faster. ConfigError.

    cases: what is timed, and checked where `tests` names no others; what they leave out is as `generate_input` has it.
    rtol, atol: how far an element may be off, where
    the reference has no check of its own; without them, what its number format allows.
    """
    if not kernel or not reference:
        raise ConfigError("problem=kernel needs problem.kernel=FILE and problem.reference=FILE.py")
    file, beside = Path(kernel).expanduser().resolve(), Path(reference).expanduser().resolve()
    module = _parsed(beside)
    usual = _defaults(module)
    timed = [_case(case, usual) for case in (cases if cases is not None else _cases(beside, module))]
    if not timed:
        raise ConfigError(f"{beside}: no cases; give problem.cases='[{{...}}]'")
    read = _read(file, beside, module, timed, {"rtol": rtol, "atol": atol})
    checked = [_case(case, usual) for case in tests or ()]
    fit = Fit(memory_mb=_MOST_MB, generate_s=_MOST_S, run_s=_MOST_S)
    made = problem(ParsedProblem(**{**read.__dict__, "tests": checked}), target, None, fit)
    _fits(file, made)
    return made


def _parsed(file: Path) -> ast.Module:
    try:
        module = ast.parse(text(file))
    except SyntaxError as error:
        raise ConfigError(f"{file} is not Python: {error.msg} (line {error.lineno})") from error
    if lost := [name for name in _NEEDED if name not in _functions(module)]:
        raise ConfigError(f"{file} defines no {' and no '.join(lost)}; a reference has both")
    return module


def _functions(module: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


def _cases(file: Path, module: ast.Module) -> list[dict[str, Any]]:
    """Those that the file lists, else the one that the defaults of `generate_input` make."""
    if (given := assigned(module).get("CASES")) is not None:
        listed = _literal(file, "CASES", given)
        if not (isinstance(listed, list | tuple) and listed):
            raise ConfigError(f"{file}: CASES is not a list of cases such as {{'m': 64, 'seed': 1}}")
        return list(listed)
    defaults = _defaults(module)
    if lost := [name for name, value in defaults.items() if value is None]:
        example = f"problem.cases='[{{{', '.join(f'{name}: 64' for name in lost)}}}]'"
        raise ConfigError(f"{file}: generate_input has no default for {', '.join(lost)}; give {example}")
    return [{name: _literal(file, name, value) for name, value in defaults.items() if value is not None}]


def _defaults(module: ast.Module) -> dict[str, ast.expr | None]:
    """Parameters of `generate_input` that make its sizes, in order, and what each is when it is left out."""
    found = parameters(_functions(module)["generate_input"].args)
    return {name: value for name, value in found.items() if name not in _NOT_SIZES}


def _literal(file: Path, name: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file}: {name} is computed; give problem.cases=[...]") from error


def _case(case: Mapping[str, Any], usual: Mapping[str, ast.expr | None]) -> tuple[Params, int]:
    """In the order of `generate_input`, so that what a kernel is called with is the same whatever a case names."""
    if not isinstance(case, Mapping):
        raise ConfigError(f"{case!r} is not a case such as {{m: 64, seed: 1}} (problem.cases, or CASES)")
    given = {str(key): value for key, value in case.items() if key != "seed"}
    left = {name: value.value for name, value in usual.items() if isinstance(value, ast.Constant)}
    known = {name: given.get(name, left.get(name)) for name in usual if name in given or name in left}
    seed = case.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"a case's seed is a whole number, not {seed!r}")
    return {**known, **given}, seed


def _read(
    file: Path, beside: Path, module: ast.Module, timed: Sequence[tuple[Params, int]], bounds: Json
) -> ParsedProblem:
    functions = _functions(module)
    own = [name for name in _CHECKS if name in functions]
    body = text(beside)
    inferred = [f"{own[0]} of {beside.name} decides" if own else "an element may be off by what its format allows"]
    if bounds["rtol"] is not None or bounds["atol"] is not None:
        inferred = [f"rtol {bounds['rtol']}, atol {bounds['atol']}"] if not own else inferred
    generate = functions["generate_input"]
    names = _returned(generate)
    if file.suffix in _FOR_GPUS and not {"device", "cuda"} & {*_words(generate)}:
        inferred.append(
            "inputs are drawn on the CPU and copied; generate_input(..., device) can draw them on a GPU, faster"
        )
    return ParsedProblem(
        name=slug(file.stem),
        title=f"{file.name}, made faster",
        statement=_said(module, functions["ref_kernel"]) or f"What {beside.name} does.",
        kind="kernel",
        files={beside.name: body},
        spec={"reference": beside.name, **bounds, **({"check": own[0]} if own else {})},
        tests=(),
        benchmarks=timed,
        listing=body,
        called="`custom_kernel(data)`: `data` is what `generate_input` returns; it returns what `ref_kernel` does.",
        origin={"format": "kernel", "path": str(file), "reference": str(beside), **provenance(file.parent),
                "inferred": inferred, "dropped": []},
        seeds=(Seed(file.name, _kernel(file), baseline=True),),
        names=names,
    )  # fmt: skip


def _words(function: ast.FunctionDef) -> Iterator[str]:
    """Its parameters and the texts in it."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]


def _said(*nodes: ast.Module | ast.FunctionDef) -> str:
    return next(filter(None, map(ast.get_docstring, nodes)), "")


def _returned(function: ast.FunctionDef) -> tuple[str, ...]:
    """The names of what is returned, where they are names."""
    last = next((node for node in reversed(function.body) if isinstance(node, ast.Return)), None)
    value = last.value if last else None
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] if value else []
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    return names if len(names) == len(parts) == len(set(names)) else ()


def _kernel(file: Path) -> Kernel:
    if file.suffix not in LANGUAGES:
        raise ConfigError(f"{file}: a kernel's file ends in one of {' '.join(LANGUAGES)}")
    try:
        return Kernel(language(file.name, body := text(file)), {file.name: body}, f"given as {file.name}")
    except ValueError as error:
        raise ConfigError(f"{file}: {error}; rename the file") from error


def _refused(kind: str, made: Problem) -> str:
    """Why a kernel's language will not do, and what would."""
    pointers = {"cpp", *DEVICE_LANGUAGES} - {"triton"}
    if kind in pointers and not pointers & {*made.languages} and (kind == "cpp" or "triton" in made.languages):
        where = made.origin["reference"]
        return f", which takes tensors alone: have generate_input of {where} return one tensor or a tuple of them"
    if kind == "cpp":
        return ", for a CPU: target=cpu"
    return f", {for_gpus(kind)}"


def _fits(file: Path, made: Problem) -> None:
    """Whether the kernel can be what the reference's data ask for. ConfigError."""
    kernel = _kernel(file)
    if kernel.language not in made.languages:
        raise ConfigError(f"{file} is {kernel.language}{_refused(kernel.language, made)}")
    found = _ENTRY.search(kernel.main)
    if kernel.language not in ("cpp", "cuda", "hip") or not found:
        return
    signature = device_signature(made) if kernel.language in DEVICE_LANGUAGES else made.signature
    declared, wanted = found[1].count(",") + 1, signature.count(",") + 1
    if declared != wanted:
        where = made.origin["reference"]
        raise ConfigError(f"{file}: custom_kernel takes {declared} arguments; for {where} it is {signature}")
