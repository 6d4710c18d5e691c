"""A winner as a patch of the repository that its function is from: `isolate` the other way round.

    _ksflow_NAME.py   beside the person's file: the kernel, what compiles it, and which calls it is for
    NAME              signature and docstring stay; it calls the kernel where that is for the call, else _NAME_reference
    _NAME_reference   what NAME did before

None of the person's files is changed. The judge tries the module first; then `timed` calls the patched function.
"""

import ast
import contextlib
import itertools
import json
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.integrate.handover import hand_over
from ksflow.integrate.handover.loader import TEXTS, host_code
from ksflow.integrate.handover.winner import case_facts, judged
from ksflow.integrate.model import operators
from ksflow.integrate.model.capture import as_python
from ksflow.integrate.model.edited import definition, diff, dispatching, folders, name_of
from ksflow.integrate.model.package import Candidate
from ksflow.integrate.model.timed import time_beside
from ksflow.kernels.problem.texts import REGION, model_region
from ksflow.protocols import Evaluator
from ksflow.records import Case, Json, Problem

_ALIGNING = re.compile(
    r"align|vector_size|\basm\b|experimental/simd|_mm\w*_(load|store|stream)(?!u)|__m\d+\w*\s*(const\s*)?[*;&]|=\s*__m\d"
)
"""What may make a compiler rely on more than an element's own alignment."""
_MADE = ("kernel.so", "kernel.cubin", "kernel.hsaco")


@dataclass(frozen=True)
class Patch:
    """A unified diff that `git apply` takes in the folder `root`, and what there is to say of it."""

    text: str
    root: Path
    said: tuple[str, ...]


def function_of(problem: Problem) -> Json:
    """What `isolate` wrote of a problem's function. ConfigError where the problem is none."""
    facts = model_region(problem)
    if facts is None or "arguments" not in facts:
        raise ConfigError(f"{problem.name} is no function of a repository: `ksflow isolate` makes a problem of one")
    return facts | {"file": Path(problem.root, facts["file"]).resolve()}


def patch(candidate: Candidate, evaluate: Evaluator, licence: str, claim: str) -> Patch:
    """The patch. ConfigError where the function cannot be replaced, or the judge finds the new module wrong."""
    facts, kernel = function_of(candidate.problem), candidate.trial.kernel
    assert kernel
    if any(node[0] == "module" for _, _, node in facts["arguments"]):
        raise ConfigError(f"{facts['function']} is a module: `ksflow model profile` and `model apply` are for those")
    if facts["library"] == "numpy" and kernel.language != "cpp":
        raise ConfigError(
            f"the winner is in {kernel.language}, for torch's tensors, and {facts['function']} takes NumPy's arrays: "
            "a patch needs one in C++, so search on with language=cpp"
        )
    file: Path = facts["file"]
    name = name_of(facts)
    old, defined = definition(facts)
    module = file.with_name(f"_ksflow_{name}.py")
    if module.exists():
        raise ConfigError(f"{module} is there: take the patch before out of {file.parent} first")
    new = dispatching(old, defined, facts, name)
    text, said = _module(candidate, facts, new, evaluate, claim, licence)
    top = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], cwd=file.parent, capture_output=True, encoding="utf-8", check=False
    )
    root = Path(top.stdout.strip() or file.parent)
    pairs = ((file.relative_to(root).as_posix(), old, new), (module.relative_to(root).as_posix(), None, text))
    return Patch("".join(diff(*pair) for pair in pairs), root, said)


def _module(
    candidate: Candidate, facts: Json, file: str, evaluate: Evaluator, claim: str, licence: str
) -> tuple[str, Any]:
    """The text of the module beside the person's file, which the judge has tried, and what there is to say of it.

    file: the new text of the person's file. The original function takes the shapes for which the patched one is slower.
    ConfigError where these are all shapes.
    """
    problem, trial = candidate.problem, candidate.trial
    assert trial.kernel
    if trial.held_out and not trial.held_out.wrong:
        candidate = replace(candidate, problem=(problem := replace(problem, tests=(*problem.tests, *problem.heldout))))
    cases = _cases(candidate, facts)
    body = _text(candidate, facts, cases)
    tried = body
    if facts["library"] == "numpy":
        tried += TEXTS["PATCH_TRIED"].format(count=sum(arg.role != "out" for arg in problem.args))
    said, most = judged(problem, evaluate, Path("module.py"), tried)
    if most is not None and not isfinite(most):
        raise ConfigError(f"{problem.name}: {said[0]}")
    rows, why = list[Json](), "the judge did not try its module"
    if most is not None:
        rows, why = _beside(replace(candidate, problem=problem), facts, (file, body), cases.values())
    slower = [line for line, row in zip(cases, rows, strict=False) if not row["why"] and row["after"] >= row["before"]]
    if len(slower) == len(cases):
        raise ConfigError(
            f"no patch: {facts['callee']} is not faster with the kernel for any shape ({_times(rows[0])}): search on, "
            "or isolate a function that calls it, whose calls take longer"
        )
    body = _text(candidate, facts, [line for line in cases if line not in slower])
    known = json.loads(Path(problem.root, REGION).read_text(encoding="utf-8"))
    known["beside"] = {"kernel": trial.kernel.digest, "chip": candidate.target.chip, "rows": rows, "why": why}
    with contextlib.suppress(OSError):  # only the text of a pull request lacks it
        home.write(Path(problem.root, REGION), json.dumps(known, indent=1) + "\n")
    lines = _timed(cases, rows, slower)
    lines += [f"the patched function was not timed beside the original: {why}"] if why else []
    lines += [f"fixed: {facts['fixed']}; calls with other values run the original code"] if facts.get("fixed") else []
    head = TEXTS["PATCH"].format(
        function=facts["function"],
        title=f"kernel {trial.id} of run {problem.name}/{candidate.run}",
        claim=claim,
        timed="\n".join(f"{line[:1].upper()}{line[1:]}" for line in lines),
        spdx=f"# SPDX-License-Identifier: {licence}" if licence else "",
    )
    return head + body, (*said, *lines)


def _timed(cases: Iterable[str], rows: Sequence[Json], slower: Collection[str]) -> list[str]:
    """A line for each case that was timed, below a head."""
    left = dict.fromkeys(slower, ": slower, so the original code takes calls of this shape")
    known = [(line, row) for line, row in zip(cases, rows, strict=False) if not row["why"]]
    lines = [f"- {_times(row)}{left.get(line, '')}" for line, row in known]
    return ["original and patched function in turns, in warm calls:", *lines] if lines else []


def _times(row: Json) -> str:
    """A case's times as a line."""
    ratio = row["before"] / row["after"]
    return f"{row['name']}: {row['before']:.4g} µs original, {row['after']:.4g} µs patched, x{ratio:.3g}"


def _beside(candidate: Candidate, facts: Json, texts: tuple[str, str], cases: Iterable[Case]) -> tuple[list[Json], str]:
    """What `timed.time_beside` returns for the patched function. texts: of the person's file, of the module beside."""
    problem, file = candidate.problem, facts["file"]
    if facts.get("program") and "__name__" not in texts[0]:
        return [], f"importing {file.name} would run the program"
    package = folders(facts)
    order = {
        "root": problem.root,
        "device": "cuda" if candidate.target.kind == "gpu" else "cpu",
        "cases": [
            {"name": case.name.partition(" real=")[0], "params": dict(case.params), "seed": case.seed} for case in cases
        ],
        "count": sum(arg.role != "out" for arg in problem.args),
        "inout": [at for at, arg in enumerate(problem.args) if arg.role == "inout"],
        "arrays": facts["library"] == "numpy",
        "path": facts["path"],
        "module": ".".join(package if file.stem == "__init__" else [*package, file.stem]),
        "file": str(file),
        "callee": facts["callee"],
        "text": texts[0],
        "beside": [".".join([*package, f"_ksflow_{name_of(facts)}"]), texts[1]],
    }
    return time_beside(order)


def _text(candidate: Candidate, facts: Json, cases: Iterable[str]) -> str:
    """The module without its head: the kernel, what compiles it, and which calls it is for."""
    problem, target, kernel = candidate.problem, candidate.target, candidate.trial.kernel
    assert kernel
    arrays = facts["library"] == "numpy"
    if arrays:
        body = host_code(problem, target, kernel, arrays="numpy as np")
    else:
        with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
            done = hand_over(Path(folder), problem, target, candidate.trial)
            if not done.files:
                raise ConfigError(f"{problem.name}: {done.said[0]}")
            body = done.files[0].read_text(encoding="utf-8")
        body += "\n\n" + Path(operators.__file__).read_text(encoding="utf-8").partition("\n\n")[2]
    for made in _MADE:
        body = body.replace(TEXTS["COMPILE"].format(made=made), TEXTS["KEPT"].format(made=made))
    text = f"{body}\n{TEXTS['FITS']}\n\n{_constants(candidate, facts, body, cases)}"
    return text + TEXTS["PATCH_ARRAYS" if arrays else "PATCH_TENSORS"]


def _cases(candidate: Candidate, facts: Json) -> dict[str, Case]:
    """The lines of a module that say for which arrays the kernel is, with a case of each; recorded contents first."""
    problem, kernel, arrays = candidate.problem, candidate.trial.kernel, facts["library"] == "numpy"
    assert kernel
    count = sum(arg.role != "out" for arg in problem.args)
    cases: dict[str, Case] = {}
    rows = case_facts(problem, candidate.target, kernel).rows
    for case, (inputs, (_, outputs, _), numbers, *_) in zip((*problem.tests, *problem.benchmarks), rows, strict=True):
        given = tuple((tuple(size), tuple(steps), kind) for size, steps, kind in inputs[:count])
        places = sorted((at for at in outputs if int(at) >= count), key=int)
        made = [(tuple(outputs[at][0]), tuple(outputs[at][1]), outputs[at][2]) for at in places]
        line = f"    {given}: {(made, tuple(numbers))},\n" if arrays else f"    {(given, made)},\n"
        if line not in cases or case.params.get("real"):
            cases[line] = case
    return cases


def _constants(candidate: Candidate, facts: Json, body: str, cases: Iterable[str]) -> str:
    """What a module knows of its calls, as Python."""
    problem, kernel, arrays = candidate.problem, candidate.trial.kernel, facts["library"] == "numpy"
    assert kernel
    count = sum(arg.role != "out" for arg in problem.args)
    _, node = definition(facts)
    wanted = [f"_ksflow_array({at})" for at in range(count)]
    named = {name or node.args.args[0].arg: as_python(one, wanted, True) for name, _, one in facts["arguments"]}
    named = _defaults(node, named) | named
    ends = "{}" if arrays else "[]"
    changed = [at for at, arg in enumerate(problem.args) if arg.role == "inout"]
    lines = [
        f"_KSFLOW_ARGUMENTS = {{{', '.join(f'{name!r}: {value}' for name, value in named.items())}}}",
        f"_KSFLOW_CASES = {ends[0]}\n{''.join(cases)}{ends[1]}",
        f"_KSFLOW_CHANGED = {changed!r}",
    ]
    if arrays:
        lines.append(f"_KSFLOW_ALIGNED = {64 if any(map(_ALIGNING.search, kernel.files.values())) else 0}")
    else:
        device = "cuda" if candidate.target.kind == "gpu" else "cpu"
        path = (f"ksflow_{kernel.digest[:8]}", node.name.strip("_"))
        lines.append(f"_KSFLOW_DEVICE, _KSFLOW_PATH = {device!r}, {path!r}")
    build = "lambda: None"
    if "\ndef _kernel():" in body:
        build = "_kernel"
    elif "\ndef _code(variant):" in body:
        build = "lambda: [_code(number) for number in range(len(_VARIANTS))]"
    number, texts = itertools.count(), []
    for given in facts["given"]:
        at = -1 if given in changed else next(number)
        texts.append(f"made[{at}]" if given is None else f"data[{given}]")
    result = as_python(facts["returned"], texts)
    return "\n".join(
        [*lines, f"_ksflow_build = {build}", "", "", f"def _ksflow_result(data, made):\n    return {result}\n"]
    )


def _defaults(node: ast.FunctionDef, passed: Collection[str]) -> dict[str, str]:
    """What arguments with a default have to be where the judged calls did not pass them."""
    several = [*node.args.posonlyargs, *node.args.args]
    usual = list(zip(several[len(several) - len(node.args.defaults) :], node.args.defaults, strict=True))
    usual += [(one, value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value]
    found = {}
    for argument, value in usual:
        if argument.arg not in passed:
            try:
                found[argument.arg] = as_python(("const", "", repr(ast.literal_eval(value))), ())
            except ValueError:
                raise ConfigError(
                    f"the default of {argument.arg} is not a literal: isolate a run that passes it"
                ) from None
    return found
