"""TritonBench: one Python file, above a line of `#` what a candidate replaces, below it the tests.

    problem=tritonbench problem.path=relu.py
    problem=tritonbench problem.root=~/TritonBench problem.channel=T problem.file=relu.py

Each call that the tests make of a function defined above is a case (`calls`).
"""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError, suggest
from ksflow.formats.assembly import CaseBudget, ParsedProblem, assemble
from ksflow.formats.checkout import provenance, slug
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.kernels.hardware.target import default_target
from ksflow.kernels.languages import detect_language
from ksflow.kernels.problem.file import read_text
from ksflow.records import Json, Kernel, Problem, Seed, Target, digest

_LINE = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
_CHANNELS = {"T": "data/TritonBench_T_v1", "G": "data/TritonBench_G_v1"}
_TIMEOUT_S = 180.0
_INTERPRETED_S = 60.0  # of Triton code on a CPU: what takes longer there could not be judged
_VERSION = 3  # of what is kept of the calls
_BUDGET = CaseBudget()
_SPARE = 2  # by how much a call must be faster than it may, to be so the next time as well


def load(  # noqa: PLR0913 - what a user may say of a file
    path: str | None = None,
    root: str | None = None,
    channel: str = "T",
    file: str | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    target: Target | None = None,
) -> Problem:
    """The problem in a file. Raises ConfigError.

    path: the file. root: a checkout of TritonBench, of which `channel` and `file` name one. channel: T or G. file: its
    name there. rtol, atol: an element may differ by atol + rtol * its size.
    """
    source = _file(path, root, channel, file)
    halves = _LINE.split(read_text(source))
    if len(halves) != 2:
        raise ConfigError(f"{source}: {len(halves) - 1} lines of 146 `#`, where one parts the function from its tests")
    upper, lower = halves
    spec: Json = {"functions": _functions_under_test(source, upper, lower), "rtol": rtol, "atol": atol}
    files = {"golden.py": upper, "tests_of_task.txt": lower, "name.txt": source.stem}
    gpu = target is not None and target.kind == "gpu"
    calls = _calls(source, files, spec, "cuda" if gpu and default_target().kind == "gpu" else "cpu")
    parsed = _parse(source, files, spec, calls)
    if not gpu and parsed.seeds[0].kernel.language != "python":
        note = "the reference is Triton code: on a CPU, its interpreter answers, and there is no kernel to start from"
        origin = {**parsed.origin, "inferred": [*parsed.origin["inferred"], note]}
        parsed = replace(parsed, origin=origin, seeds=(), good=parsed.seeds)
    return assemble(parsed, target, None, _BUDGET)


def _file(path: str | None, root: str | None, channel: str, file: str | None) -> Path:
    if path:
        chosen = Path(path).expanduser()
    elif root and file:
        if channel not in _CHANNELS:
            raise ConfigError(f"problem.channel={channel}; {suggest(channel, _CHANNELS)}")
        base = Path(root).expanduser()
        folder = base / _CHANNELS[channel]
        chosen = folder / (file if file.endswith(".py") else f"{file}.py")
        if folder.is_dir() and not chosen.is_file():
            close, _, _ = suggest(chosen.name, [file.name for file in folder.glob("*.py")]).partition(" valid:")
            close = close if "did you mean" in close else "its names are those of the files there"
            raise ConfigError(f"no {chosen.name} in {folder}; {close}")
    else:
        raise ConfigError("problem=tritonbench needs problem.path=FILE.py, or problem.root=CHECKOUT problem.file=NAME")
    return chosen.resolve()


def _functions_under_test(source: Path, upper: str, lower: str) -> list[str]:
    """What is defined above and called below, without Triton's own functions."""
    try:
        above, below = ast.parse(upper), ast.parse(lower)
    except SyntaxError as error:
        raise ConfigError(f"{source} is not Python: {error.msg} (line {error.lineno} of its part)") from error
    defined = [
        node.name
        for node in above.body
        if isinstance(node, ast.FunctionDef)
        and not any(re.search("jit|autotune", ast.unparse(decorator)) for decorator in node.decorator_list)
    ]
    bound = (name for node in above.body if isinstance(node, ast.Assign) for name in node.targets)
    defined += [name.id for name in bound if isinstance(name, ast.Name)]
    used = {node.func.id for node in ast.walk(below) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    tested = [name for name in defined if name in used]
    if not tested:
        raise ConfigError(f"{source}: its tests call no function that it defines, so there is nothing to replace")
    return tested


def _calls(source: Path, files: Json, spec: Json, device: str) -> list[Json]:
    """Every call of the tests: whether it is a case, else why not. Kept for the next time. Raises ConfigError."""
    limits = {"generate_s": _BUDGET.generate_s / _SPARE, "run_s": _BUDGET.run_s / _SPARE}
    order = {"files": files, "spec": spec, "device": device, **limits}
    name = digest(json.dumps([_VERSION, order]), digits=24)
    cached = home.cache("imported", f"calls-{name}.json")
    if cached.exists():
        return list(json.loads(cached.read_text(encoding="utf-8")))
    triton = "triton" in files["golden.py"] and device == "cpu"
    most_s = _INTERPRETED_S if triton else _TIMEOUT_S
    calls, why = list[Json](), ""
    try:
        calls = run_isolated("ksflow.formats.tritonbench.calls", order, most_s)
        if all(row["why"] for row in calls):
            last = calls[0]["why"] if calls else "they make none"
            why = f"none of its tests' calls can be a case: {last}"
    except IsolatedFailure as error:
        why = f"its tests do not run here: {str(error)[:300]}"
    if why:
        remedy = "; it is Triton code, which only Triton's interpreter runs here: use a machine with a GPU"
        if "have been removed" in why or "named 'triton" in why:
            remedy = "; it was written for an older Triton than the one that is installed"
        raise ConfigError(f"{source}: {why}{remedy if triton else ''}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    home.write(cached, json.dumps(calls))
    return calls


def _parse(source: Path, files: Json, spec: Json, calls: Sequence[Json]) -> ParsedProblem:
    upper = files["golden.py"]
    listing = upper.strip() + "\n"
    cases = [row for row in calls if not row["why"]]
    names = ", ".join(f"`{name}`" for name in spec["functions"])
    inferred = ["every call of the tests that can be judged is a case, and all of them are timed"]
    if any(row["fixed"] for row in cases):
        inferred.append(
            "contents that the tests write out are changed for each seed: signs, zeros, symmetry stay, and so does the "
            "range of whole numbers"
        )
    if "cuda" in upper + files["tests_of_task.txt"]:
        inferred.append("the file says cuda; on a CPU that means the CPU")
    module = ast.parse(upper)
    documented = next((node for node in module.body if isinstance(node, ast.FunctionDef)), module)
    return ParsedProblem(
        name=slug(f"tritonbench-{source.stem}"),
        title=f"{source.stem} (TritonBench)",
        statement=ast.get_docstring(documented) or f"What {names} does.",
        format="tritonbench",
        files=files,
        spec=spec,
        tests=(),
        benchmarks=[({"call": row["call"]}, 0) for row in cases],
        listing=listing,
        called=f"{names}, with the reference's parameters; each is called as the tests call it.",
        origin={"format": "tritonbench", "path": str(source), **provenance(source.parent), "inferred": inferred,
                "dropped": [f"call {row['call']} of {row['function']}: {row['why']}" for row in calls if row["why"]]},
        seeds=(Seed(source.name, Kernel(detect_language(source.name, upper), {source.name: listing}), baseline=True),),
        languages=("python", "triton"),
    )  # fmt: skip
