"""A winner as a patch of the repository that its function is from: `isolate` the other way round.

    _ksflow_NAME.py   beside the person's file: the kernel, what compiles it, and which calls it is for
    NAME              signature and docstring stay; it calls the kernel where that is for the call, else _NAME_reference
    _NAME_reference   what NAME did before

None of the person's files is changed, and nothing of a kernel is run here but by the judge.
"""

import ast
import contextlib
import difflib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
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
from ksflow.integrate.model.capture import as_python, inside
from ksflow.integrate.model.package import Candidate
from ksflow.integrate.model.slices import fingerprint
from ksflow.kernels.problem.texts import REGION, model_region
from ksflow.protocols import Evaluator
from ksflow.records import Json, Problem

_HARMLESS = ("torch.no_grad()", "torch.inference_mode()")
"""Decorators below which a kernel may be called instead of a function."""
_ALIGNING = re.compile(
    r"align|vector_size|\basm\b|experimental/simd|_mm\w*_(load|store|stream)(?!u)|__m\d+\w*\s*(const\s*)?[*;&]|=\s*__m\d"
)
"""What may make a compiler rely on more than an element's own alignment."""
_ARRAY = "np.ndarray(size, kind, np.zeros(span, kind), 0, [np.dtype(kind).itemsize * step for step in steps])"
_TENSOR = "torch.zeros(span, dtype=getattr(torch, kind)).as_strided(size, steps)"
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
    name = facts["callee"].rpartition(".")[2].strip("_")
    old, defined = _definition(facts)
    module = file.with_name(f"_ksflow_{name}.py")
    if module.exists():
        raise ConfigError(f"{module} is there: take the patch before out of {file.parent} first")
    new = _dispatching(old, defined, facts, name)
    text, said = _module(candidate, facts, evaluate, licence, claim)
    top = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], cwd=file.parent, capture_output=True, encoding="utf-8", check=False
    )
    root = Path(top.stdout.strip() or file.parent)
    pairs = ((file.relative_to(root).as_posix(), old, new), (module.relative_to(root).as_posix(), None, text))
    return Patch("".join(_diff(*pair) for pair in pairs), root, said)


def _definition(facts: Json) -> tuple[str, ast.FunctionDef]:
    """The text of a function's file, and the function. ConfigError where it is not as it was, or cannot be replaced."""
    file, path = facts["file"], facts["callee"].split(".")
    if not file.is_file() or fingerprint(file, facts["callee"], facts["path"]) != facts["source"]:
        raise ConfigError(f"{file} has changed since {facts['function']} was isolated: isolate it again, and search")
    with file.open(encoding="utf-8", newline="") as stream:
        text = stream.read()
    found: Any = ast.parse(text)
    names = {node.name for node in ast.walk(found) if isinstance(node, ast.FunctionDef)}
    for part in path:
        inside = [node for node in found.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part]
        if not inside:
            raise ConfigError(f"{file} has no plain definition of {facts['callee']}, which a patch needs")
        found = inside[-1]
    why = ""
    if found.args.vararg or found.args.kwarg:
        why = "takes any number of arguments"
    elif other := [one for one in map(ast.unparse, found.decorator_list) if one not in _HARMLESS]:
        why = f"has the decorator {other[0]}, which a kernel would be called below"
    elif f"_{path[-1].strip('_')}_reference" in names:
        why = f"has a _{path[-1].strip('_')}_reference beside it"
    elif found.body[0].lineno == found.lineno:
        why = "is written on one line"
    if why:
        raise ConfigError(f"{facts['function']} {why}: patch by hand, or isolate a function that it calls")
    return text, found


def _dispatching(text: str, node: ast.FunctionDef, facts: Json, name: str) -> str:
    """The person's file with the kernel called where it fits."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [line.rstrip("\r\n") for line in io.StringIO(text, newline="\n")]
    first = node.body[0]
    documented = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
    head = lines[node.lineno - 1 : first.lineno - 1]
    at = (first.end_lineno or first.lineno) if documented else first.lineno - 1
    if isinstance(first, ast.FunctionDef | ast.ClassDef) and first.decorator_list:
        at = first.decorator_list[0].lineno - 1
        head = lines[node.lineno - 1 : at]
    indent, outer = " " * first.col_offset, " " * node.col_offset
    reference = f"_{name}_reference"
    every = [*node.args.posonlyargs, *node.args.args]
    words = [one.arg for one in every] + [f"{one.arg}={one.arg}" for one in node.args.kwonlyargs]
    own = words.pop(0) if facts["arguments"] and facts["arguments"][0][0] == "" else ""
    given = [one.arg for one in (*every, *node.args.kwonlyargs)]
    added = [
        f"{indent}_found = _ksflow_{name}.try_kernel({', '.join(f'{one}={one}' for one in given)})",
        f"{indent}if _found:",
        f"{indent}    return _found[0]",
        f"{indent}return {f'{own}.' if own else ''}{reference}({', '.join(words)})",
        *([""] if own else ["", ""]),
        head[0].replace(f"def {node.name}", f"def {reference}", 1),
        *head[1:],
        f'{indent}"""What `{node.name}` does where its kernel is not for the call."""',
    ]
    assert head[0].startswith(f"{outer}def ")
    place, imported = _import(ast.parse(text), facts, name)
    lines[at:at] = added
    lines[place:place] = [imported]
    return end.join(lines) + (end if text.endswith("\n") else "")


def _import(tree: ast.Module, facts: Json, name: str) -> tuple[int, str]:
    """Before which line (from 0) the module is imported, and how."""
    folders: list[str] = []
    folder = facts["file"].parent
    while (folder / "__init__.py").is_file():
        folders.insert(0, folder.name)
        folder = folder.parent
    dotted = facts["function"].partition(":")[0]
    if not folders and dotted.rpartition(".")[2] == facts["file"].stem:
        folders = dotted.split(".")[:-1]
    place = 0
    for at, statement in enumerate(tree.body):
        documented = at == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not documented and not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        place = statement.end_lineno or statement.lineno
    return place, f"from {'.'.join(folders)} import _ksflow_{name}" if folders else f"import _ksflow_{name}"


def _module(candidate: Candidate, facts: Json, evaluate: Evaluator, licence: str, claim: str) -> tuple[str, Any]:
    """The text of the module beside the person's file, which the judge has tried, and what it said."""
    problem, trial = candidate.problem, candidate.trial
    if trial.held_out and not trial.held_out.wrong:
        problem = replace(problem, tests=(*problem.tests, *problem.heldout))
    candidate = replace(candidate, problem=problem)
    spdx = f"# SPDX-License-Identifier: {licence}" if licence else ""
    words = {"function": facts["function"], "title": f"kernel {trial.id} of run {problem.name}/{candidate.run}"}
    text = TEXTS["PATCH"].format(**words, claim=claim, spdx=spdx) + _text(candidate, facts)
    tried = text
    if facts["library"] == "numpy":
        tried += TEXTS["PATCH_TRIED"].format(count=sum(arg.role != "out" for arg in problem.args))
    said, most = judged(problem, evaluate, Path("module.py"), tried)
    if most is not None and not isfinite(most):
        raise ConfigError(f"{problem.name}: {said[0]}")
    cost = _overhead_us(candidate, facts)
    if cost is None:
        return text, tuple(said)
    known = json.loads(Path(problem.root, REGION).read_text(encoding="utf-8"))
    with contextlib.suppress(OSError):  # only the text of a pull request lacks it
        home.write(Path(problem.root, REGION), json.dumps(known | {"overhead_us": cost}, indent=1) + "\n")
    return text, (
        *said,
        f"beside the kernel, a call takes {cost:.3g} µs on this machine (the smallest case)",
    )


def _overhead_us(candidate: Candidate, facts: Json) -> float | None:
    """What a call of the winner's patch takes beside the kernel, for the smallest case, in µs; None where that is not
    known. A function that does nothing stands in the kernel's place."""
    kernel = candidate.trial.kernel
    assert kernel
    objects = any(node[0] in ("object", "module") for node in inside(facts["arguments"]))
    if kernel.language != "cpp" or objects:
        return None
    empty = f"#include <cstdint>\n{candidate.problem.signature} {{}}\n"
    stub = replace(kernel, files={next(iter(kernel.files)): empty})
    words = {"cases": "_KSFLOW_CASES", "array": _ARRAY}
    if facts["library"] == "torch":
        words = {"cases": "[rows for rows, _ in _KSFLOW_CASES]", "array": _TENSOR}
    text = _text(replace(candidate, trial=replace(candidate.trial, kernel=stub)), facts)
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        command = [sys.executable, "-c", text + TEXTS["PATCH_TIMED"].format(**words)]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    return None if done.returncode or not done.stdout else json.loads(done.stdout)


def _text(candidate: Candidate, facts: Json) -> str:
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
    text = f"{body}\n{TEXTS['FITS']}\n\n{_constants(candidate, facts, body)}"
    return text + TEXTS["PATCH_ARRAYS" if arrays else "PATCH_TENSORS"]


def _constants(candidate: Candidate, facts: Json, body: str) -> str:
    """What a module knows of its calls, as Python."""
    problem, kernel, arrays = candidate.problem, candidate.trial.kernel, facts["library"] == "numpy"
    assert kernel
    count = sum(arg.role != "out" for arg in problem.args)
    cases: dict[str, str] = {}
    for inputs, (_, outputs, _), numbers, *_ in case_facts(problem, candidate.target, kernel).rows:
        given = tuple((tuple(size), tuple(steps), kind) for size, steps, kind in inputs[:count])
        places = sorted((at for at in outputs if int(at) >= count), key=int)
        made = [(tuple(outputs[at][0]), tuple(outputs[at][1]), outputs[at][2]) for at in places]
        cases[repr(given)] = f"{given}: {(made, tuple(numbers))}" if arrays else repr((given, made))
    _, node = _definition(facts)
    wanted = [f"_ksflow_array({at})" for at in range(count)]
    named = {name or node.args.args[0].arg: as_python(one, wanted, True) for name, _, one in facts["arguments"]}
    named = _defaults(node, named) | named
    ends = "{}" if arrays else "[]"
    rows = "".join(f"    {row},\n" for row in cases.values())
    changed = [at for at, arg in enumerate(problem.args) if arg.role == "inout"]
    lines = [
        f"_KSFLOW_ARGUMENTS = {{{', '.join(f'{name!r}: {value}' for name, value in named.items())}}}",
        f"_KSFLOW_CASES = {ends[0]}\n{rows}{ends[1]}",
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


def _diff(name: str, old: str | None, new: str) -> str:
    """One file's part of a patch; `old` is None for a new file."""
    before, after = (list(io.StringIO(text or "", newline="\n")) for text in (old, new))
    head = f"diff --git a/{name} b/{name}\n" + ("new file mode 100644\n" if old is None else "")
    lines = difflib.unified_diff(before, after, os.devnull if old is None else f"a/{name}", f"b/{name}")
    return head + "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
