"""TritonBench: one Python file, above a line of `#` what a candidate replaces, below it the tests.

    problem=tritonbench problem.path=relu.py
    problem=tritonbench problem.root=~/TritonBench problem.channel=T problem.file=relu.py

Each call that the tests make of a function defined above is a case. A process of the judge's side finds them.
"""

import ast
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.formats.assembly import Fit, ParsedProblem, problem, slug, text
from ksflow.formats.gpumode.importer import provenance
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.hardware.target import default_target
from ksflow.problem.loader import suggest
from ksflow.records import Json, Kernel, Problem, Seed, Target, language

_LINE = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
_CHANNELS = {"T": "data/TritonBench_T_v1", "G": "data/TritonBench_G_v1"}
_FIND = "ksflow.formats.tritonbench.calls"
_TIMEOUT_S = 180.0
_INTERPRETED_S = 60.0
"""Of Triton code on a CPU: what takes longer there could not be judged."""
_VERSION = 2
"""Of what is kept of the calls."""
_FIT = Fit()
_SPARE = 2
"""By how much a call must be faster than it may, to be so the next time as well."""
_ACCUMULATE = "bfloat16"
"""The arithmetic that a task asks for: the format says nothing, and its bounds are wide."""


def load(  # noqa: PLR0913 - what a user may say of a file
    path: str | None = None,
    root: str | None = None,
    channel: str = "T",
    file: str | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    device: str = "auto",
    target: Target | None = None,
) -> Problem:
    """The problem in a file. ConfigError.

    rtol, atol: an element may differ by atol + rtol * its size. device: `cpu` has `cuda` mean the CPU.
    """
    source = _file(path, root, channel, file)
    body = text(source)
    halves = _LINE.split(body)
    if len(halves) != 2:
        raise ConfigError(f"{source}: {len(halves) - 1} lines of 146 `#`, where one parts the function from its tests")
    upper, lower = halves
    names = _called(source, upper, lower)
    spec: Json = {"functions": names, "rtol": rtol, "atol": atol}
    files = {"golden.py": upper, "tests_of_task.txt": lower, "name.txt": source.stem}
    on = None if device == "cpu" else target
    found = _calls(source, files, spec, on)
    read = _read(source, upper, lower, files, {**spec, **_chosen(found)})
    return problem(_placed(read, on), on, None, _FIT)


def _file(path: str | None, root: str | None, channel: str, file: str | None) -> Path:
    if path:
        found = Path(path).expanduser()
    elif root and file:
        if channel not in _CHANNELS:
            raise ConfigError(f"problem.channel={channel}; {suggest(channel, _CHANNELS)}")
        base = Path(root).expanduser()
        folder = base / _CHANNELS[channel]
        found = folder / (file if file.endswith(".py") else f"{file}.py")
        if folder.is_dir() and not found.is_file():
            raise ConfigError(f"no {found.name} in {folder}; {_close(found.name, folder)}")
    else:
        raise ConfigError("problem=tritonbench needs problem.path=FILE.py, or problem.root=CHECKOUT problem.file=NAME")
    return found.resolve()


def _close(name: str, folder: Path) -> str:
    words = suggest(name, [file.name for file in folder.glob("*.py")])
    return words.partition(" valid:")[0] if "did you mean" in words else "its names are those of the files there"


def _called(source: Path, upper: str, lower: str) -> list[str]:
    """What is defined above and called below, without Triton's own functions."""
    try:
        above, below = ast.parse(upper), ast.parse(lower)
    except SyntaxError as error:
        raise ConfigError(f"{source} is not Python: {error.msg} (line {error.lineno} of its part)") from error
    defined = [node.name for node in above.body if isinstance(node, ast.FunctionDef) and not _jitted(node)]
    bound = (name for node in above.body if isinstance(node, ast.Assign) for name in node.targets)
    defined += [name.id for name in bound if isinstance(name, ast.Name)]
    used = {node.func.id for node in ast.walk(below) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    found = [name for name in defined if name in used]
    if not found:
        raise ConfigError(f"{source}: its tests call no function that it defines, so there is nothing to replace")
    return found


def _jitted(node: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(one) or "autotune" in ast.unparse(one) for one in node.decorator_list)


def _calls(source: Path, files: Mapping[str, str], spec: Json, target: Target | None) -> list[Json]:
    """Every call of the tests: whether it is a case, else why not. Kept for the next time."""
    device = "cuda" if target and target.kind == "gpu" and default_target().kind == "gpu" else "cpu"
    order = {
        "files": dict(files),
        "spec": {**spec, "accumulate": _ACCUMULATE},
        "device": device,
        "generate_s": _FIT.generate_s / _SPARE,
        "run_s": _FIT.run_s / _SPARE,
    }
    text_of = json.dumps([_VERSION, order])
    kept = home.cache("imported", f"calls-{hashlib.sha256(text_of.encode()).hexdigest()[:24]}.json")
    if not kept.exists():
        answer = _ask(source, order, "triton" in files["golden.py"] and device == "cpu")
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(answer))
        partial.replace(kept)
    found: list[Json] = json.loads(kept.read_text())
    return found


def _ask(source: Path, order: Json, triton: bool) -> list[Json]:
    most_s = _INTERPRETED_S if triton else _TIMEOUT_S
    try:
        found: list[Json] = run_isolated(_FIND, order, most_s)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{source}: its tests ran for {most_s:g} s{_remedy(triton)}") from error
    except IsolatedFailure as error:
        last = str(error)
        raise ConfigError(f"{source}: its tests do not run here: {last[:300]}{_remedy(triton, last)}") from error
    if not any(not row["why"] for row in found):
        why = found[0]["why"] if found else "they make none"
        raise ConfigError(f"{source}: none of its tests' calls can be a case: {why}{_remedy(triton, why)}")
    return found


def _remedy(triton: bool, why: str = "") -> str:
    """What helps Triton code that does not run on a CPU."""
    if not triton:
        return ""
    if "have been removed" in why or "named 'triton" in why:
        return "; it was written for an older Triton than the one that is installed"
    return "; it is Triton code, which only Triton's interpreter runs here: use a machine with a GPU"


def _chosen(found: list[Json]) -> Json:
    return {"rows": [row for row in found if not row["why"]], "left": [row for row in found if row["why"]]}


def _read(source: Path, upper: str, lower: str, files: Mapping[str, str], spec: Json) -> ParsedProblem:
    rows, left = spec.pop("rows"), spec.pop("left")
    kind = language(source.name, upper)
    names = ", ".join(f"`{name}`" for name in spec["functions"])
    inferred = ["every call of the tests that can be judged is a case, and all of them are timed"]
    if any(row["fixed"] for row in rows):
        inferred.append(
            "contents that the tests write out are changed for each seed: signs, zeros, symmetry stay, and so does the "
            "range of whole numbers"
        )
    if "cuda" in upper + lower:
        inferred.append("the file says cuda; on a CPU that means the CPU")
    origin = {
        "format": "tritonbench",
        "path": str(source),
        **provenance(source.parent),
        "inferred": inferred,
        "dropped": [f"call {row['call']} of {row['function']}: {row['why']}" for row in left],
    }
    return ParsedProblem(
        name=slug(f"tritonbench-{source.stem}"),
        title=f"{source.stem} (TritonBench)",
        statement=ast.get_docstring(_first(upper)) or f"What {names} does.",
        kind="tritonbench",
        files=files,
        spec=spec,
        tests=(),
        benchmarks=[({"call": row["call"]}, 0) for row in rows],
        listing=upper.strip() + "\n",
        called=f"{names}, with the reference's parameters; each is called as the tests call it.",
        origin=origin,
        seeds=(Seed(source.name, Kernel(kind, {source.name: upper.strip() + "\n"}), baseline=True),),
        languages=("python", "triton"),
        accumulate=_ACCUMULATE,
    )


def _placed(read: ParsedProblem, target: Target | None) -> ParsedProblem:
    """On a CPU, Triton code is no kernel to start from: there, candidates are in Python."""
    there = target is not None and target.kind == "gpu"
    if there or all(seed.kernel.language == "python" for seed in read.seeds):
        return read
    said = "the reference is Triton code: on a CPU, its interpreter answers, and there is no kernel to start from"
    origin = {**read.origin, "inferred": [*read.origin["inferred"], said]}
    return replace(read, origin=origin, seeds=(), good=read.seeds)


def _first(upper: str) -> ast.Module | ast.FunctionDef:
    """The first function, where people write what it does."""
    tree = ast.parse(upper)
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), tree)
