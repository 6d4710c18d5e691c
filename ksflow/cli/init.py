"""The verb `init`: a problem or a stage of one's own that runs as it is, with comments that say what to change.

A problem is a copy of `examples/own_problem`, a designer that of `examples/own_stage`; the other kinds of stages are in
`skeletons`.
"""

import importlib.util
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from ksflow import report
from ksflow.cli import usage
from ksflow.config import keys
from ksflow.errors import ConfigError, explain_write_errors, suggest
from ksflow.home import shipped_path, write
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.loader import load

_PROBLEM = ("examples", "own_problem", "column_sums")
_DESIGNER = ("examples", "own_stage", "parts.py")
_KINDS = ("selector", "designer", "writer", "verifier", "evaluator", "digester")
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_DRIVER = """import difflib
import doctest
import importlib
import inspect
import sys
import time

sys.path.insert(0, sys.argv[1])
module = importlib.import_module(sys.argv[2])
owner, dot, _ = sys.argv[3].partition(".")
if dot and hasattr(module, owner):
    one = getattr(module, owner)
    kind = one if inspect.isclass(one) else type(one)
    method = f"{sys.argv[2]}:{kind.__name__}.{sys.argv[3].rpartition('.')[2]}"
    sys.exit(f"Error: {sys.argv[3]} is a method: have a program call it, ksflow isolate {method} --run 'COMMAND'")
function = getattr(module, sys.argv[3], None)
if function is None:
    known = [name for name, one in vars(module).items() if inspect.isfunction(one) and one.__module__ == sys.argv[2]]
    close = difflib.get_close_matches(sys.argv[3], known, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    sys.exit(f"Error: {sys.argv[2]}.py has no {sys.argv[3]}; {meant}valid: {', '.join(known)}")
kind = function if inspect.isclass(function) else type(function)
method, of_torch = f"{sys.argv[2]}:{kind.__name__}", sys.modules.get("torch")
if of_torch and issubclass(kind, of_torch.nn.Module):
    sys.exit(
        f"Error: {sys.argv[3]} is an nn.Module, no function: ksflow isolate {method} --run 'COMMAND' takes it from a "
        f"program that calls it in eval(), ksflow model profile {sys.argv[2]}.py from a file with model() and inputs()"
    )
if inspect.isclass(function) or not callable(function):
    what = "a class" if inspect.isclass(function) else f"a {kind.__name__}, which is not called"
    sys.exit(f"Error: {sys.argv[3]} is {what}: name a function; ksflow isolate MODULE:CLASS.METHOD is for methods")
examples = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
if hasattr(module, "CASES"):
    for place, case in enumerate(module.CASES):
        case = case() if callable(case) else case
        given, named = ((), case) if isinstance(case, dict) else (case, {})
        takes = inspect.signature(function)
        try:
            takes.bind(*given, **named)
        except TypeError as error:
            sys.exit(f"Error: CASES[{place}] of {sys.argv[2]}.py does not fit {sys.argv[3]}{takes}: {error}")
        begun = time.perf_counter()
        for _ in range(5):  # the first call is a cold one
            function(*given, **named)
            if time.perf_counter() - begun > 1:
                break
elif examples:
    names = dict(vars(module))
    for example in examples:
        exec(example.source, names)
else:
    parameters = inspect.signature(function).parameters.values()
    if lacking := [one.name for one in parameters if one.default is one.empty and one.kind < 2]:
        sys.exit(f"Error: nothing says what {', '.join(lacking)} can be: write CASES = [(...), ...] or a >>> example")
    function()
"""
_STUB = """// {why}: fill this in. It compiles, and is wrong until then.
#include <cmath>
#include <cstdint>

{signature} {{
}}
"""
_INNER = """inner:
  _target_: ksflow.stages.evaluator.local.LocalEvaluator
  target: ${target}
"""


def init(words: list[str], overrides: list[str]) -> int:
    """`init problem NAME`, `init stage KIND NAME`: 0, or ConfigError where something is there already."""
    usage.expect_word("init", words, ("problem", "stage"))
    own, rest = keys.own_options(overrides, "from")
    if foreign := rest or ([] if words[:1] == ["problem"] else overrides):
        raise ConfigError(
            f"init takes no {foreign[0]!r}: init problem NAME [from=FILE.py:FUNCTION], init stage KIND NAME"
        )
    console = report.console()
    match words:
        case ["problem", name, *function] if len([*function, *own]) < 2:
            _problem(console, name, "".join([*function, *own.values()]))
        case ["stage", kind, name]:
            if kind not in _KINDS:
                raise ConfigError(f"no stage {kind!r}; {suggest(kind, _KINDS)}")
            _stage(console, kind, name)
        case _:
            raise ConfigError(
                f"the commands are: init problem NAME [FILE.py:FUNCTION], init stage {'|'.join(_KINDS)} NAME"
            )
    return 0


def _problem(console: Console, name: str, function: str) -> None:
    folder = Path(name)
    if not re.fullmatch(r"[A-Za-z]\w*", folder.name, re.ASCII):
        raise ConfigError(f"{folder.name!r} cannot name a problem: take letters, digits and _, a letter first")
    if name in keys.options("problem"):
        raise ConfigError(f"problem={name} ships with ksflow; take another name")
    _expect_absent(folder)
    if function:
        _from_function(console, folder, function)
        return
    with explain_write_errors(folder, "go to a folder you can write to"):
        shutil.copytree(shipped_path(*_PROBLEM), folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    what = {
        "problem.yaml": "arguments, shapes, limits",
        "reference.py": "inputs, reference, how exact",
        "statement.md": "what a model is told",
        "seeds/00_torch.py": "the baseline",
        "seeds/cpu/01_loops.cpp": "a kernel to start from",
    }
    files = {folder / file: role for file, role in what.items()}
    show_written(console, files, f"problem check problem={name}", f"problem={name} loop.evaluations=6")


def _from_function(console: Console, folder: Path, function: str) -> None:
    """A problem from a function's own calls, with a kernel to begin with."""
    from ksflow.integrate.model import capture, isolate  # torch takes seconds

    file, _, name = function.rpartition(":")
    path = Path(file).expanduser()
    if path.suffix == ".py" and not path.is_file():
        raise ConfigError(f"from={function}: no file {file}")
    if not path.is_file() or not path.stem.isidentifier():
        raise ConfigError(f"from={function}: name a Python file and a function in it, such as from=filters.py:smooth")
    with tempfile.TemporaryDirectory(prefix="ksflow-") as place:
        driver = Path(place, "driver.py")
        driver.write_text(_DRIVER, encoding="utf-8")
        words = [sys.executable, str(driver), str(path.resolve().parent), path.stem, name]
        seen = capture.observe(f"{path.stem}:{name}", shlex.join(words), Path(place), f"the calls in {path.name}")
        table, _ = isolate.isolate(seen, Path(place), folder.parent, folder.name)
    report.say(console, *table["remarks"])
    ready, role, command = write_start(folder)
    files = {folder / "reference.py": "your function, as the judge calls it", ready: role}
    show_written(console, files, f"problem check problem={folder}", command)


def write_start(folder: Path, typed: str = "") -> tuple[Path, str, str]:
    """Write a C++ kernel to start from into a problem's folder, a stub where no loop nest can be made of the reference.

    Returns the file, what it is, and the command that goes on, where `typed` names the folder.
    """
    from ksflow.formats.loops import naive  # torch takes seconds

    problem, typed = load(str(folder), target=detect()), typed or str(folder)
    kernel, why = naive(problem, isolated=False)  # the function has run in this process before
    if kernel:
        file, role = folder / "seeds" / "cpu" / "01_loops.cpp", "a loop nest to start from"
        command = f"problem={typed} loop.evaluations=6"
    else:
        file, role = folder / "kernel.cpp", f"to be filled in: compiled, and wrong until then ({why})"
        command = f"problem={typed} seed_kernels={file} loop.evaluations=6"
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, kernel or _STUB.format(why=why, signature=problem.signature))
    return file, role, command


def _stage(console: Console, kind: str, name: str) -> None:
    if not re.fullmatch(r"[a-z]\w*", name, re.ASCII):
        raise ConfigError(f"{name!r} cannot name a stage: take small letters, digits and _, a letter first")
    if name in keys.options(kind):
        raise ConfigError(f"{kind}={name} ships with ksflow; take another name")
    module, options = Path(f"{name}.py"), Path("conf", kind, f"{name}.yaml")
    for file in (module, options):
        _expect_absent(file)
    if importlib.util.find_spec(name):
        raise ConfigError(f"a module {name} is there already (`import {name}` finds it); take another name")
    skeleton = shipped_path(*_DESIGNER) if kind == "designer" else Path(__file__).with_name("skeletons") / f"{kind}.py"
    text = skeleton.read_text(encoding="utf-8")
    match = _CLASS.search(text)
    assert match, skeleton
    class_name = "".join(part.capitalize() for part in name.split("_"))
    text = re.sub(rf"\b{match[1]}\b", class_name, text)
    text = re.sub(rf"\b{kind}=\w+", f"{kind}={name}", text) if kind != "evaluator" else text
    about = "# What the class's constructor takes are the keys of this file, and of the command line.\n"
    inner = _INNER if kind == "evaluator" else ""
    with explain_write_errors(module, "go to a folder you can write to"):
        options.parent.mkdir(parents=True, exist_ok=True)
        write(module, text)
        write(options, f"{about}_target_: {name}.{class_name}\n{inner}")
    files = {module: f"the {kind}: change its __call__", options: f"makes it {kind}={name}"}
    asks = " writer=verified llm=dummy" if kind == "verifier" else ""
    show_written(console, files, f"--config-dir=conf{asks} {kind}={name} problem=softmax loop.evaluations=4")


def _expect_absent(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} is there already, and nothing is overwritten; take another name")


def show_written(console: Console, files: dict[Path, str], *commands: str) -> None:
    """Say what was written, and how it is run."""
    width = max(len(str(file)) for file in files)
    console.print("written:")
    report.say(console, *(f"  {file!s:{width}}  {role}" for file, role in files.items()))
    stub = next((file for file, role in files.items() if role.startswith("to be filled in")), None)
    without = f"without a model, nothing can be searched before {stub} is filled in; fill it in, then:"
    report.say(console, without if stub else "it runs as it is:")
    if stub:
        commands = (*commands, f"{commands[-1].partition(' ')[0]} llm=NAME")
    for command in commands:
        if stub and command is commands[-1]:
            console.print("or have a model write the kernels:")
        console.print(f"  ksflow {command}", soft_wrap=True, no_wrap=True)
