"""The winner as the file that its problem's ecosystem takes: a submission, a `ModelNew`, a solution, or a module.

What was written is asked once, as any candidate is: by the judge, in a box. Device code with launch lines is handed
over with what launches it (`loader`).
"""

import ast
import io
import json
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ksflow.export.companions import apart
from ksflow.export.loader import Facts, loader, unseen
from ksflow.formats.flashinfer.solutions import params, solution, traces, write_lines
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.protocols import Evaluator
from ksflow.records import DEVICE_LANGUAGES, Evaluation, Json, Kernel, Problem, Target, Trial, Verdict
from ksflow.source.tunables import launch_lines

_TIMEOUT_S = 300.0
_COMPILED = ("cpp", "cuda", "hip")
_NAMES = {"gpumode": "submission.py", "popcorn": "submission.py", "kernelbench": "model_new.py", "flashinfer": "run.py"}
"""Format -> the file; every other problem's is a module."""
_MODULE, _SOLUTION, _TRACES = "module.py", "solution.json", "traces.jsonl"
_BESIDE = """import os as _os
import sys as _sys
import tempfile as _tempfile

_BESIDE = {files!r}
_folder = _tempfile.TemporaryDirectory(prefix="ksflow-")
_sys.path.insert(0, _folder.name)
for _name, _text in _BESIDE.items():
    with open(_os.path.join(_folder.name, _name), "w", encoding="utf-8") as _out:
        _out.write(_text)

"""
_MARK = 8
"""Digits of a kernel's digest that set its files and its solution apart from all others'."""
_CHILD = "ksflow.export.facts"


@dataclass(frozen=True)
class Exported:
    """What was written, and what there is to know of it."""

    files: tuple[Path, ...]
    said: tuple[str, ...]


def export_winner(
    folder: Path,
    problem: Problem,
    target: Target,
    trial: Trial,
    evaluate: Evaluator | None = None,
    baseline: Trial | None = None,
) -> Exported:
    """Write the winner in its problem's format below `folder`. Never raises for a kernel that cannot be handed over.

    evaluate: asked whether the file is right, if it has `measure`. baseline: what a FlashInfer trace names as the
    reference's time; without one there are no traces.
    """
    kernel, kind = trial.kernel, str(problem.origin.get("format", ""))
    assert kernel is not None
    if kind == "command":
        return Exported((), (f"{problem.origin['file']}: put it in its place in {problem.origin['path']}",))
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*_NAMES.values(), _MODULE, _SOLUTION, _TRACES):  # of the winner before
        (folder / name).unlink(missing_ok=True)
    file = folder / _NAMES.get(kind, _MODULE)
    try:
        facts = _facts(problem, target, kernel) if kernel.language in _COMPILED or _launched(kernel) else None
        text = _text(problem, target, trial, kind, facts)
    except ValueError as error:
        return Exported((), (f"not handed over: {error}",))
    file.write_text(text, encoding="utf-8")
    said, errors = _tried(problem, evaluate, file, text)
    lints = [*_lints(kind, text), *_narrow(problem, kernel, file.name), *_guessed(problem, facts, file.name)]
    if kind != "flashinfer":
        return Exported((file,), (*said, *lints))
    return Exported(_flashinfer(folder, problem, target, trial, baseline, errors), (*said, *lints))


def _narrow(problem: Problem, kernel: Kernel, name: str) -> list[str]:
    """A word on a file that takes no sizes but those judged, where these were cut for a CPU."""
    cap = problem.origin.get("cap")
    if cap is None or not (kernel.language in _COMPILED or _launched(kernel)):
        return []
    return [f"{name}: takes the sizes that were judged and no others, here none above {cap} (problem.cap)"]


def _guessed(problem: Problem, facts: Facts | None, name: str) -> list[str]:
    """A word on numbers that a kernel is given and that no tensor tells, where cases differ in them alone."""
    rows = unseen(problem.dims, facts) if facts else {}
    given = ", ".join(f"{dim}={value}" for dim, value in rows.items())
    return [f"{name}: calls the kernel with {given} where cases differ in nothing that tensors show"] if rows else []


def _launched(kernel: Kernel) -> bool:
    """Whether it is nothing but functions for a device, with lines that say how they are launched."""
    return kernel.language in DEVICE_LANGUAGES and any(kind == "launch" for kind, _ in launch_lines(kernel.main))


def _text(problem: Problem, target: Target, trial: Trial, kind: str, facts: Facts | None) -> str:
    """One file that has all of it. facts: of a kernel that must be launched. ValueError where that cannot be."""
    kernel = trial.kernel
    assert kernel is not None
    head = _head(problem, target, trial, kind)
    if facts:
        return head + loader(problem, target, kernel, facts)
    main, *rest = kernel.files
    beside = {name: kernel.files[name] for name in rest}
    if kind not in ("gpumode", "popcorn"):  # there they lie beside a submission
        beside |= {name: text for name, text in problem.files.items() if name not in beside}
    text, beside = apart(kernel.files[main], beside, kernel.digest[:_MARK])
    future, body = _future(text)
    return head + future + (_BESIDE.format(files=beside) if beside else "") + body


def _future(text: str) -> tuple[str, str]:
    """(imports that must come first, the rest)."""
    lines = list(io.StringIO(text))
    found = [one for one in ast.parse(text).body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    first = {number for one in found for number in range(one.lineno - 1, one.end_lineno or one.lineno)}
    return "".join(lines[at] for at in sorted(first)), "".join(line for at, line in enumerate(lines) if at not in first)


def _head(problem: Problem, target: Target, trial: Trial, kind: str) -> str:
    lines = []
    if kind in ("gpumode", "popcorn"):
        said = {"leaderboard": problem.origin.get("leaderboard"), "gpu": problem.origin.get("gpu")}
        lines = [f"#!POPCORN {word} {value}" for word, value in said.items() if value]
    score = f", {trial.score_us:.4g} us on {target.chip}" if trial.score_us else ""
    return "\n".join([*lines, f"# {problem.name}: kernel {trial.id} of ksflow{score}", ""])


def _tried(problem: Problem, evaluate: Evaluator | None, file: Path, text: str) -> tuple[list[str], list[Json]]:
    """What the judge says of the file: (in words, of each benchmark the errors)."""
    measure = getattr(evaluate, "measure", None)
    if measure is None:
        return [f"{file.name}: not tried: this evaluator runs no file here"], []
    others = tuple(case for case in problem.tests if case not in problem.benchmarks)
    asked = replace(problem, languages=("python",), tests=(*problem.benchmarks, *others), benchmarks=())
    found: Evaluation = measure(asked, Kernel("python", {file.name: text}, ""))
    if found.verdict is Verdict.HARNESS:
        return [f"{file.name}: not tried: {found.reason}"], []
    if found.verdict is not Verdict.UNTIMED:
        return [f"{file.name} does not do what the kernel did: {found.verdict}: {found.reason}"], []
    rows = [_errors(row["errors"]) for row in found.evidence.get("checked", ())[: len(problem.benchmarks)]]
    return [f"{file.name}: the judge finds that it answers as the reference does"], rows


def _errors(outputs: list[list[float]]) -> Json:
    absolute, relative = (max(float(one[place]) for one in outputs) for place in (0, 1))
    return {"max_absolute_error": absolute, "max_relative_error": relative, "extra": None}


def _facts(problem: Problem, target: Target, kernel: Kernel) -> Facts:
    """Of a process of its own, which runs the reference. ValueError."""
    order = {
        "root": problem.root,
        "device": "cuda" if target.kind == "gpu" else "cpu",
        "outputs": sum(arg.role == "out" for arg in problem.args),
        "args": [arg.name for arg in problem.args],
        "dims": list(problem.dims),
        "source": kernel.main if _launched(kernel) else "",
        "cases": [{**asdict(case), "params": dict(case.params)} for case in (*problem.tests, *problem.benchmarks)],
    }
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        try:
            found = run_isolated(_CHILD, order, _TIMEOUT_S, home=folder)
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"took longer than {_TIMEOUT_S:g} s") from error
        except IsolatedFailure as error:
            raise ValueError(str(error)[:300]) from error
    return Facts(found["rows"], found["sources"])


def _lints(kind: str, text: str) -> list[str]:
    """What a server would refuse."""
    if kind not in ("gpumode", "popcorn"):
        return []
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if re.search("stream", line, re.I)]
    shown = ", ".join(map(str, lines[:5]))
    return [f"warning: the word `stream` (lines {shown}) is refused by GPU MODE's server"] if lines else []


def _flashinfer(
    folder: Path, problem: Problem, target: Target, trial: Trial, baseline: Trial | None, errors: list[Json]
) -> tuple[Path, ...]:
    """The solution, and its traces where there is a time of the reference to tell."""
    source = (folder / _NAMES["flashinfer"]).read_text(encoding="utf-8")
    assert trial.kernel is not None
    kind = "python" if trial.kernel.language in _COMPILED else trial.kernel.language
    definition = str(problem.origin["definition"])
    name = f"ksflow-{definition}-{trial.id}-{trial.kernel.digest[:_MARK]}"  # a data set refuses a name that it has
    passing = bool(problem.origin.get("destination"))
    made = solution(
        definition, name, Kernel(kind, {"run.py": source}, trial.kernel.report), "run", target.chip, passing
    )
    file = folder / _SOLUTION
    file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    before = baseline.evaluation if baseline else None
    workloads = problem.origin["workloads"]
    whole = [dict(case.params) for case in problem.benchmarks] == [*map(params, workloads)]
    if not (trial.evaluation and before and before.accepted and errors and whole):
        return (file,)
    rows = traces(definition, name, workloads, (trial.evaluation, before), errors, target)
    write_lines(folder / _TRACES, rows)
    return file, folder / _TRACES
