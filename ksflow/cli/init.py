"""The verb `init`: a problem or a stage of one's own that runs as it is, with comments that say what to change.

A problem is a copy of `examples/own_problem`, a designer that of `examples/own_stage`; the other kinds of stages are in
`skeletons`.
"""

import importlib.util
import re
import shutil
from pathlib import Path

from rich.console import Console

from ksflow import report
from ksflow.cli import usage
from ksflow.config import keys
from ksflow.errors import ConfigError, suggest, writing
from ksflow.home import shipped, write

_PROBLEM = ("examples", "own_problem", "column_sums")
_DESIGNER = ("examples", "own_stage", "parts.py")
_KINDS = ("selector", "designer", "writer", "verifier", "evaluator", "digester")
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_INNER = """inner:
  _target_: ksflow.stages.evaluator.local.LocalEvaluator
  target: ${target}
"""


def init(words: list[str], overrides: list[str]) -> int:
    """`init problem NAME`, `init stage KIND NAME`: 0, or ConfigError where something is there already."""
    usage.expect_word("init", words, ("problem", "stage"))
    if overrides:
        raise ConfigError(f"init takes words alone, not {overrides[0]!r}: init problem NAME, init stage KIND NAME")
    console = report.console()
    match words:
        case ["problem", name]:
            _problem(console, name)
        case ["stage", kind, name]:
            if kind not in _KINDS:
                raise ConfigError(f"no stage {kind!r}; {suggest(kind, _KINDS)}")
            _stage(console, kind, name)
        case _:
            raise ConfigError(f"the commands are: init problem NAME, init stage {'|'.join(_KINDS)} NAME")
    return 0


def _problem(console: Console, name: str) -> None:
    folder = Path(name)
    if not re.fullmatch(r"[A-Za-z]\w*", folder.name, re.ASCII):
        raise ConfigError(f"{folder.name!r} cannot name a problem: take letters, digits and _, a letter first")
    if name in keys.options("problem"):
        raise ConfigError(f"problem={name} ships with ksflow; take another name")
    _expect_absent(folder)
    with writing(folder, "go to a folder you can write to"):
        shutil.copytree(shipped(*_PROBLEM), folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    what = {
        "problem.yaml": "arguments, shapes, limits",
        "reference.py": "inputs, reference, how exact",
        "statement.md": "what a model is told",
        "seeds/00_torch.py": "the baseline",
        "seeds/cpu/01_loops.cpp": "a kernel to start from",
    }
    files = {folder / file: role for file, role in what.items()}
    _tell(console, files, f"problem check problem={name}", f"problem={name} loop.evaluations=6")


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
    skeleton = shipped(*_DESIGNER) if kind == "designer" else Path(__file__).with_name("skeletons") / f"{kind}.py"
    text = skeleton.read_text(encoding="utf-8")
    match = _CLASS.search(text)
    assert match, skeleton
    class_name = "".join(part.capitalize() for part in name.split("_"))
    text = re.sub(rf"\b{match[1]}\b", class_name, text)
    text = re.sub(rf"\b{kind}=\w+", f"{kind}={name}", text) if kind != "evaluator" else text
    about = "# What the class's constructor takes are the keys of this file, and of the command line.\n"
    inner = _INNER if kind == "evaluator" else ""
    with writing(module, "go to a folder you can write to"):
        options.parent.mkdir(parents=True, exist_ok=True)
        write(module, text)
        write(options, f"{about}_target_: {name}.{class_name}\n{inner}")
    files = {module: f"the {kind}: change its __call__", options: f"makes it {kind}={name}"}
    asks = " writer=verified llm=dummy" if kind == "verifier" else ""
    _tell(console, files, f"--config-dir=conf{asks} {kind}={name} problem=softmax loop.evaluations=4")


def _expect_absent(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} is there already, and nothing is overwritten; take another name")


def _tell(console: Console, files: dict[Path, str], *commands: str) -> None:
    """What was written, and how it is run."""
    width = max(len(str(file)) for file in files)
    console.print("written:")
    report.say(console, *(f"  {file!s:{width}}  {role}" for file, role in files.items()))
    console.print("it runs as it is:")
    for command in commands:
        console.print(f"  ksflow {command}", soft_wrap=True, no_wrap=True)
