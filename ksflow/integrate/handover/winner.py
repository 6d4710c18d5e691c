"""The winner as the file that its problem's ecosystem takes: a submission, a `ModelNew`, a solution, or a module.

The judge tries what was written once, in a sandbox, as it does any candidate. Device code with launch lines comes with
what launches it (`loader`).
"""

import ast
import io
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath

from ksflow import home
from ksflow.formats.flashinfer.solutions import solution
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.integrate.handover.loader import TEXTS, WORDLESS, Facts, ambiguous_dims, loader
from ksflow.integrate.handover.table import extended
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.kernels.source.tunables import has_launches
from ksflow.protocols import Evaluator
from ksflow.records import Case, Json, Kernel, Problem, Target, Trial, Verdict, digest

_TIMEOUT_S = 300.0
_VERSION = 2
"""Of what `facts` answers: what was kept under another number is not read."""
_NAMES = {"gpumode": "submission.py", "popcorn": "submission.py", "kernelbench": "model_new.py", "flashinfer": "run.py"}
"""Format -> the file; every other problem's is a module."""
_MODULE, _SOLUTION = "module.py", "solution.json"
_MARK = 8
"""Digits of a kernel's digest that set its files and its solution apart from all others'."""


@dataclass(frozen=True)
class HandedOver:
    """What was written, and what there is to know of it."""

    files: tuple[Path, ...]
    said: tuple[str, ...]
    error: float | None = None
    """By how much the file's answers differ from the reference's at most, over all cases: infinite where they are
    wrong, None where the judge was not asked."""


def hand_over(  # noqa: PLR0913 - what is written, and what is said of it
    folder: Path,
    problem: Problem,
    target: Target,
    trial: Trial,
    evaluate: Evaluator | None = None,
    claim: str = "",
    tuned: Sequence[Json] = (),
) -> HandedOver:
    """Write the winner in its problem's format below `folder`. Never raises for a kernel that cannot be handed over.

    evaluate: asked whether the file is right, if it has `measure`. claim: the run's figure, as in `write_best`.
    tuned: the rows of its table (`table.update`), whose cases the file takes, too.
    """
    problem, trial = extended(problem, trial, tuned, target.chip)
    kernel, kind = trial.kernel, str(problem.origin.get("format", ""))
    assert kernel is not None
    if kind == "command":
        return HandedOver((), (f"{problem.origin['file']}: put it in its place in {problem.origin['path']}",))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _NAMES.get(kind, _MODULE)
    needs_facts = not LANGUAGES[kernel.language].python or _launched(kernel)
    refused, facts, text = "", None, ""
    try:  # compiles; who is interrupted here keeps the files of the winner before
        facts = case_facts(problem, target, kernel) if needs_facts else None
        text = loader(problem, target, kernel, facts, tuned) if facts else _python(problem, kernel, kind)
    except ValueError as error:
        refused = f"not handed over: {error}"
    for name in (*_NAMES.values(), _MODULE, _SOLUTION):  # of the winner before
        (folder / name).unlink(missing_ok=True)
    if refused:
        return HandedOver((), (refused,))
    words = {word: problem.origin.get(word) for word in ("leaderboard", "gpu")} if kind in WORDLESS else {}
    head = "".join(f"#!POPCORN {word} {value}\n" for word, value in words.items() if value)
    score = f", {claim} on {target.chip}" if claim else ""
    text = f"{head}# {problem.name}: kernel {trial.id} of ksflow{score}\n{text}"
    home.write(file, text)
    info, most = judged(problem, evaluate, file, text)
    lines = [str(number) for number, line in enumerate(text.splitlines(), start=1) if "stream" in line.lower()]
    if kind in WORDLESS and lines:
        info.append(f"warning: the word `stream` (lines {', '.join(lines[:5])}) is refused by GPU MODE's server")
    cap = problem.origin.get("cap")
    if facts and cap is not None:
        info.append(f"{file.name}: takes the sizes that were judged and no others, here none above {cap} (problem.cap)")
    if rows := ambiguous_dims(problem.dims, facts) if facts else {}:
        sizes = ", ".join(f"{dim}={value}" for dim, value in rows.items())
        info.append(f"{file.name}: calls the kernel with {sizes} where cases differ in nothing that tensors show")
    file = file if kind != "flashinfer" else _flashinfer(file, problem, target, trial)
    return HandedOver((file,), tuple(info), most)


def _launched(kernel: Kernel) -> bool:
    """Whether it is nothing but functions for a device, with lines that say how they are launched."""
    return kernel.language in ON_DEVICE and has_launches(kernel.main)


def _python(problem: Problem, kernel: Kernel, kind: str) -> str:
    """A kernel in Python as one file that holds those beside it."""
    main, *rest = kernel.files
    beside = {name: kernel.files[name] for name in rest}
    if kind not in WORDLESS:  # there they lie beside a submission
        beside |= {name: text for name, text in problem.files.items() if name not in beside}
    text, beside = mark_modules(kernel.files[main], beside, kernel.digest[:_MARK])
    lines = list(io.StringIO(text))
    imports = [n for n in ast.parse(text).body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    first = {number for n in imports for number in range(n.lineno - 1, n.end_lineno or n.lineno)}
    future = "".join(lines[at] for at in sorted(first))
    body = "".join(line for at, line in enumerate(lines) if at not in first)
    return future + (TEXTS["BESIDE"].format(files=beside) if beside else "") + body


def mark_modules(main: str, beside: Mapping[str, str], mark: str) -> tuple[str, dict[str, str]]:
    """A main file's text and the files beside it, where Python modules have a mark in their names and are imported so.

    A process may load the files of several winners (FlashInfer's benchmark loads every solution of a data set): were
    each to bring a `helper.py`, Python would give all of them the first one's. mark: letters and digits. Not covered:
    modules that are imported by a name that is computed.
    """
    names = {PurePath(name).stem: f"{PurePath(name).stem}_{mark}" for name in beside if name.endswith(".py")}
    files = {}
    for name, text in beside.items():
        python = name.endswith(".py")
        files[f"{names[PurePath(name).stem]}.py" if python else name] = _importing(text, names) if python else text
    return _importing(main, names), files


def _importing(text: str, names: Mapping[str, str]) -> str:
    """The text with other names where it imports modules."""
    edits = []  # line and column of each import, what it says, and what it is to say
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in names and not node.level:
            edits.append((node.lineno, node.col_offset, f"from {node.module} ", f"from {names[node.module]} "))
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.name in names:
                old = ast.unparse(alias)
                new = f"{names[alias.name]} as {alias.asname or alias.name}"
                edits.append((alias.lineno, alias.col_offset, old, new))
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for row, column, old, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + line[column:].replace(old.encode(), new.encode(), 1)
    return b"".join(lines).decode()


def handover_problem(problem: Problem, extra: Iterable[Case] = ()) -> Problem:
    """The problem whose tests a module is tried on: the benchmarks first, then the other tests, then `extra`."""
    others = (case for case in (*problem.tests, *extra) if case not in problem.benchmarks)
    return replace(problem, languages=("python",), tests=(*problem.benchmarks, *others), benchmarks=())


def judged(problem: Problem, evaluate: Evaluator | None, file: Path, text: str) -> tuple[list[str], float | None]:
    """What the judge says of the file: (in words, `HandedOver.error`)."""
    evaluation = (
        evaluate.measure(handover_problem(problem), Kernel("python", {file.name: text}, "")) if evaluate else None
    )
    if evaluation is None:
        return [f"{file.name}: not tried: this evaluator runs no file here"], None
    if evaluation.verdict is Verdict.HARNESS:
        return [f"{file.name}: not tried: {evaluation.reason}"], None
    if evaluation.verdict is not Verdict.UNTIMED:
        return [f"{file.name} does not do what the kernel did: {evaluation.verdict}: {evaluation.reason}"], math.inf
    most = max((float(error[0]) for row in evaluation.evidence.checked for error in row.errors), default=None)
    return [f"{file.name}: the judge finds that it answers as the reference does"], most


def case_facts(problem: Problem, target: Target, kernel: Kernel) -> Facts:
    """Of a process of its own, which runs the reference, unless it was asked before. ValueError."""
    order = {
        "root": problem.root,
        "device": "cuda" if target.kind == "gpu" else "cpu",
        "outputs": sum(arg.role == "out" for arg in problem.args),
        "inout": [index for index, arg in enumerate(problem.args) if arg.role == "inout"],
        "args": [arg.name for arg in problem.args],
        "dims": list(problem.dims),
        "source": kernel.main if _launched(kernel) else "",
        "cases": [{**asdict(case), "params": dict(case.params)} for case in (*problem.tests, *problem.benchmarks)],
    }
    identity = json.dumps([_VERSION, problem.digest, {**order, "root": ""}])
    cached = home.cache("facts", f"{digest(identity, digits=24)}.json")
    if problem.digest and cached.exists():
        content = json.loads(cached.read_text(encoding="utf-8"))
        return Facts(content["rows"], content["sources"])
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        try:
            content = run_isolated("ksflow.integrate.handover.facts", order, _TIMEOUT_S, home=folder)
        except IsolatedFailure as error:
            raise ValueError(str(error)[:300]) from error
    cached.parent.mkdir(parents=True, exist_ok=True)
    home.write(cached, json.dumps(content))
    return Facts(content["rows"], content["sources"])


def _flashinfer(run: Path, problem: Problem, target: Target, trial: Trial) -> Path:
    """The solution."""
    assert trial.kernel is not None
    kind = "triton" if LANGUAGES[trial.kernel.language].compiler == "triton" else "python"
    kernel = Kernel(kind, {run.name: run.read_text(encoding="utf-8")}, trial.kernel.report)
    definition = str(problem.origin["definition"])
    name = f"ksflow-{definition}-{trial.id}-{trial.kernel.digest[:_MARK]}"  # a data set refuses a name that it has
    hardware = "" if str(problem.origin.get("path")).endswith("/definition.json") else target.chip
    content = solution(definition, name, kernel, "run", hardware)
    file = run.with_name(_SOLUTION)
    home.write(file, json.dumps(content, indent=1) + "\n")
    return file
