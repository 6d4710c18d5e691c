"""A kernel of the user's own, with a reference beside it: no problem folder is needed.

    problem=kernel problem.kernel=my.cpp problem.reference=my_ref.py problem.cases='[{m: 64}, {m: 512}]'

The reference has `generate_input(**case, seed)` and `ref_kernel(data)`; it may have `check_implementation(data,
output)` or `oracle(data)`, which then decide, and `CASES = [...]`. One that imports numpy and not torch takes and
returns arrays. Without a kernel the search starts from a C++ loop nest made from the reference (`loops`), or from the
reference alone.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError
from ksflow.formats.assembly import CaseBudget, ParsedProblem, assemble, without_compile
from ksflow.formats.cases import SeededParams, parameters
from ksflow.formats.checkout import parse_python, provenance, slug
from ksflow.formats.loops import naive
from ksflow.formats.sizes import constants
from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.problem.file import read_text
from ksflow.kernels.problem.kernel_file import for_gpus, kernel_file
from ksflow.kernels.source import signature
from ksflow.records import Json, Kernel, Problem, Seed, Target

_CHECKS = ("check_implementation", "oracle")
_BUDGET = CaseBudget(memory_mb=8192, generate_s=60.0, run_s=60.0)
_NOT_SIZES = ("seed", "device")


def load(  # noqa: PLR0913 - what a user may say of a kernel
    kernel: str | None = None,
    reference: str | None = None,
    cases: Sequence[Mapping[str, Any]] | None = None,
    tests: Sequence[Mapping[str, Any]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    compile: bool | None = None,
    target: Target | None = None,
) -> Problem:
    """The problem of making a kernel faster. Raises ConfigError.

    kernel: the file to be made faster; without one the reference is. reference: a Python file with `generate_input` and
    `ref_kernel`. cases: what is timed, and checked where `tests` names no others; what they leave out is as
    `generate_input` has it. tests: cases that are checked and not timed.
    rtol, atol: how far an element may be off, where the reference has no check of its own; without them, what its
    number format allows. compile: have the reference through `torch.compile` as a second baseline; None on a GPU only,
    as every process of it compiles anew, which takes a CPU some ten seconds.
    """
    if not reference:
        raise ConfigError("problem=kernel needs problem.reference=FILE.py, and may have problem.kernel=FILE")
    beside = Path(reference).expanduser().resolve()
    file = Path(kernel).expanduser().resolve() if kernel else None
    body = read_text(beside)
    module = parse_python(beside, body, ("generate_input", "ref_kernel"), "a reference")
    takes = parameters(_functions(module)["generate_input"].args)
    usual = {name: value for name, value in takes.items() if name not in _NOT_SIZES}
    timed = [_case(case, usual) for case in (cases if cases is not None else _own_cases(beside, module, usual))]
    if not timed:
        raise ConfigError(f"{beside}: no cases; give problem.cases='[{{...}}]'")
    parsed = _parse(file, beside, module, body, timed, {"rtol": rtol, "atol": atol})
    task = assemble(replace(parsed, tests=[_case(case, usual) for case in tests or ()]), target, None, _BUDGET)
    gpu = target is not None and target.kind == "gpu"
    if file is None and "cpp" in task.languages:
        loops, why = naive(task, beside)
        made = (Seed("01_loops.cpp", Kernel("cpp", {"01_loops.cpp": loops})),) if loops else ()
        dropped = [] if loops else [f"a C++ loop nest to start from: {why}"]
        task = replace(task, seeds=made, origin={**task.origin, "dropped": [*task.origin["dropped"], *dropped]})
    task = _with_baselines(task, module, body, gpu if compile is None else compile)
    if file is None:
        return task
    kind = task.seeds[-1].kernel.language
    pointers = {name for name, language in LANGUAGES.items() if not language.python}
    if kind not in task.languages:
        why = f", {for_gpus(kind)}" if kind != "cpp" else ", for a CPU: target=cpu"
        if kind in pointers and not pointers & {*task.languages} and (kind == "cpp" or "triton" in task.languages):
            why = f", which takes tensors alone: have generate_input of {beside} return one tensor or a tuple of them"
        raise ConfigError(f"{file} is {kind}{why}")
    if wrong := signature.fault(task, task.seeds[-1].kernel):
        raise ConfigError(f"{file}: {wrong}")
    return task


def _with_baselines(problem: Problem, module: ast.Module, body: str, compiled: bool) -> Problem:
    """With the reference as candidates in front of the kernel to start from: what speed-ups are claimed against."""
    if _in_numpy(module):
        arrays = Path(__file__).with_name("arrays.py").read_text(encoding="utf-8")
        text = f"{body.rstrip()}\n\n\n{arrays}"
        value = "lambda data: as_tensors(ref_kernel(as_arrays(data)))"
        return replace(problem, seeds=(_baseline("00_numpy.py", text, value), *problem.seeds))
    if "torch" not in _imported(module):
        return replace(problem, seeds=(_baseline("00_reference.py", body, "ref_kernel"), *problem.seeds))
    seeds = [_baseline("00_torch.py", body, "ref_kernel")]
    if compiled:
        seeds.append(_baseline("01_compile.py", body, "__import__('torch').compile(ref_kernel)"))
    return without_compile(replace(problem, seeds=(*seeds, *problem.seeds)), compiled)


def _imported(module: ast.Module) -> set[str]:
    """The packages that a file imports."""
    nodes = [*ast.walk(module)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def _in_numpy(module: ast.Module) -> bool:
    return "numpy" in (packages := _imported(module)) and "torch" not in packages


def _baseline(name: str, body: str, value: str) -> Seed:
    return Seed(name, Kernel("python", {name: f"{body.rstrip()}\n\n\ncustom_kernel = {value}\n"}), baseline=True)


def _functions(module: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


def _own_cases(file: Path, module: ast.Module, usual: Mapping[str, ast.expr | None]) -> list[dict[str, Any]]:
    """Those that the file lists, else the one that the defaults of `generate_input` make."""
    if (node := constants(module).get("CASES")) is not None:
        listed = _literal(file, "CASES", node)
        if not (isinstance(listed, list | tuple) and listed):
            raise ConfigError(f"{file}: CASES is not a list of cases such as {{'m': 64, 'seed': 1}}")
        return list(listed)
    if lost := [name for name, value in usual.items() if value is None]:
        written, typed = (", ".join(f"{quote}{name}{quote}: 64" for name in lost) for quote in ('"', ""))
        ways = f"write CASES = [{{{written}}}] in it, or give problem.cases='[{{{typed}}}]'"
        raise ConfigError(f"{file}: generate_input has no default for {', '.join(lost)}; {ways}")
    return [{name: _literal(file, name, value) for name, value in usual.items() if value is not None}]


def _literal(file: Path, name: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file}: {name} is computed; give problem.cases=[...]") from error


def _case(case: Mapping[str, Any], usual: Mapping[str, ast.expr | None]) -> SeededParams:
    """In the order of `generate_input`, so that what a kernel is called with is the same whatever a case names."""
    if not isinstance(case, Mapping):
        raise ConfigError(f"{case!r} is not a case such as {{m: 64, seed: 1}} (problem.cases, or CASES)")
    own = {str(key): value for key, value in case.items() if key != "seed"}
    left = {name: value.value for name, value in usual.items() if isinstance(value, ast.Constant)}
    known = {name: own.get(name, left.get(name)) for name in usual if name in own or name in left}
    seed = case.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"a case's seed is a whole number, not {seed!r}")
    return {**known, **own}, seed


def _parse(
    file: Path | None, beside: Path, module: ast.Module, body: str, timed: Sequence[SeededParams], bounds: Json
) -> ParsedProblem:
    functions, numpy = _functions(module), _in_numpy(module)
    own = [name for name in _CHECKS if name in functions]
    inferred = [f"{own[0]} of {beside.name} decides" if own else "an element may be off by what its format allows"]
    if not own and (bounds["rtol"] is not None or bounds["atol"] is not None):
        inferred = [f"rtol {bounds['rtol']}, atol {bounds['atol']}"]
    generate = functions["generate_input"]
    nodes = [*ast.walk(generate)]
    words = {node.arg for node in nodes if isinstance(node, ast.arg)}
    words |= {str(node.value).partition(":")[0] for node in nodes if isinstance(node, ast.Constant)}
    kernel = kernel_file(str(file)) if file else None
    if kernel and beside.parent == file and beside.name in kernel.files:
        raise ConfigError(f"{beside} is in the kernel's folder, where a kernel could call it: put it elsewhere")
    if kernel and kernel.language in ("cuda", "hip") and not {"device", "cuda"} & words:
        faster = "generate_input(..., device) can draw them on a GPU, faster"
        inferred.append(f"inputs are drawn on the CPU and copied; {faster}")
    statement = ast.get_docstring(module) or ast.get_docstring(functions["ref_kernel"])
    return ParsedProblem(
        name=slug((file or beside).stem),
        title=f"{(file or beside).name}, made faster",
        statement=statement or f"What {beside.name} does.",
        format="kernel",
        files={beside.name: body},
        spec={"reference": beside.name, **bounds, **({"check": own[0]} if own else {}),
              **({"numpy": True} if numpy else {})},
        tests=(),
        benchmarks=timed,
        listing=body,
        called="`custom_kernel(data)`: `data` is what `generate_input` returns; it returns what `ref_kernel` does"
        + (", with torch tensors where the reference has arrays." if numpy else "."),
        origin={"format": "kernel", "path": str(file or beside), "reference": str(beside),
                **provenance((file or beside).parent),
                "inferred": inferred, "dropped": []},
        seeds=(Seed(file.name, kernel),) if file and kernel else (),
        arg_names=_returned(generate),
    )  # fmt: skip


def _returned(function: ast.FunctionDef) -> tuple[str, ...]:
    """The names of what is returned, where they are names."""
    last = next((node for node in reversed(function.body) if isinstance(node, ast.Return)), None)
    value = last.value if last else None
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] if value else []
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    return names if len(names) == len(parts) == len(set(names)) else ()
