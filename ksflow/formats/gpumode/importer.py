"""GPU MODE's tasks: a folder with `task.yml`, `reference.py` and what they name.

    problem=gpumode problem.path=~/reference-kernels/problems/amd/fp8-mm
    problem=gpumode problem.root=~/reference-kernels problem.name=amd-fp8-mm       the leaderboard's name

Upstream's cases travel as text, which makes strings of booleans; so it does here, and the typed ones are checked
besides. How upstream times (seven generations of eval.py) is not repeated: the judge's own clock counts.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ksflow.errors import ConfigError, suggest
from ksflow.formats.assembly import ParsedProblem, assemble
from ksflow.formats.cases import SeededParams
from ksflow.formats.checkout import provenance, slug
from ksflow.kernels.languages import detect_language
from ksflow.kernels.problem.file import read_text
from ksflow.records import FILE_NAME, Json, Kernel, Limits, Problem, Seed, Target

_SCORES = {"last": "last", "mean": "mean", "geom": "geomean", None: "last"}
_KEYS = {
    "files", "lang", "description", "config", "templates", "tests", "benchmarks", "test_timeout", "benchmark_timeout",
    "ranked_timeout", "ranking_by", "multi_gpu", "gpus", "libraries", "seed",
}  # fmt: skip
TIMEOUTS = ("test_timeout", "benchmark_timeout", "ranked_timeout")
SLOT = "@SUBMISSION@"
_ENDINGS = (".py", ".yml", ".yaml", ".json", ".h", ".cuh", ".txt")
_DEFAULT_S = 180.0
_MAKES_INPUTS = re.compile(
    r"\bdef generate_input\b|^\s*generate_input *[=:]|\bimport\b[^\n(]*(?:\([^)]*)?\bgenerate_input\b", re.MULTILINE
)
"""What defines, assigns or imports `generate_input`."""
_SAYS_CUDA = re.compile(r"device\s*=\s*f?['\"]cuda|\.cuda\(")
_TYPED = re.compile(r"==\s*['\"]true['\"]")  # in an `eval.py` that makes truth values of words


def load(
    path: str | None = None,
    root: str | None = None,
    name: str | None = None,
    cap: int | str | None = "auto",
    target: Target | None = None,
) -> Problem:
    """The task in a folder, or of a leaderboard's name below a checkout. Raises ConfigError.

    path: the task's folder, or its task.yml. root: a checkout, below which `name` is found. name: the leaderboard's.
    cap: the largest size; `auto` has a CPU take the largest that fits the budget, null is none.
    """
    folder = _folder(path, root, name)
    file = folder / "task.yml"
    task = read_yaml(file)
    if not isinstance(task, dict) or not isinstance(task.get("files"), list):
        raise ConfigError(f"{file} is no task: it has no list `files`")
    if not all(isinstance(entry, Mapping) for entry in task["files"]):
        raise ConfigError(f"{file}: files is not a list of mappings")
    check_task(task, str(file))
    return assemble(parse(task, _files(folder, task), _source(folder, task)), target, cap)


def _folder(path: str | None, root: str | None, name: str | None) -> Path:
    if path:
        folder = Path(path).expanduser()
        folder = folder.parent if folder.name == "task.yml" else folder
    elif root and name:
        checkout = Path(root).expanduser()
        base = checkout / "problems" if (checkout / "problems").is_dir() else checkout
        boards: dict[str, Path] = {}
        for file in sorted(base.glob("*.yaml")):
            listed = read_yaml(file)
            entries = listed.get("problems") if isinstance(listed, dict) else None
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict):
                    boards[str(entry.get("name"))] = base / str(entry.get("directory", ""))
        for file in sorted(base.glob("*/*/task.yml")):
            boards.setdefault(f"{file.parent.parent.name}/{file.parent.name}", file.parent)
        if name not in boards:
            raise ConfigError(f"no leaderboard {name!r} below {base}; {suggest(name, boards)}")
        folder = boards[name]
    else:
        needed = "problem.path=FOLDER, or problem.root=CHECKOUT problem.name=LEADERBOARD"
        raise ConfigError(f"problem=gpumode needs {needed}")
    if not (folder / "task.yml").is_file():
        raise ConfigError(f"no task.yml in {folder}; problem.path is the folder that holds it")
    return folder.resolve()


def read_yaml(file: Path) -> Any:
    """The content of a YAML file. Raises ConfigError."""
    try:
        return yaml.safe_load(read_text(file))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of a date that is none
        raise ConfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from error


def check_task(task: Json, where: str) -> None:
    """Raises ConfigError where a task is one that cannot be judged here or elsewhere."""
    if task.get("ranking_by") not in [*_SCORES]:
        raise ConfigError(f"{where}: ranking_by {task['ranking_by']!r} is not last, mean or geom")
    if task.get("multi_gpu"):
        raise ConfigError(f"{where}: a task for several GPUs (multi_gpu); the judge has one for each kernel")
    for kind in ("tests", "benchmarks"):
        cases = task.get(kind) or []
        if not (isinstance(cases, list) and all(isinstance(case, Mapping) for case in cases)):
            raise ConfigError(f"{where}: {kind} is not a list of mappings")
        if odd := [case["seed"] for case in cases if type(case.get("seed", 0)) is not int]:
            raise ConfigError(f"{where}: seed {odd[0]!r} is no whole number")
    for key in TIMEOUTS:
        if not isinstance(task.get(key) or 0, int | float):
            raise ConfigError(f"{where}: {key} {task[key]!r} is no number of seconds")


@dataclass(frozen=True)
class TaskSource:
    """Where a task is from, and what came with it beside the task."""

    name: str
    title: str
    origin: Json
    good: tuple[Seed, ...] = ()
    bad: tuple[Seed, ...] = ()
    eval_text: str = ""  # of its `eval.py`, which is not run


def parse(task: Json, files: Mapping[str, str], source: TaskSource) -> ParsedProblem:
    """A task's meaning. Raises ConfigError. files: what lies beside a submission."""
    reference = next((name for name in ("reference.py", *files) if _MAKES_INPUTS.search(files.get(name, ""))), "")
    if not reference:
        raise ConfigError(
            f"{source.name}: none of its files defines generate_input ({', '.join(files)}); a task whose own eval.py "
            "asks for something else cannot be judged here"
        )
    body = files[reference]
    checked = task.get("tests") or []
    listed = task.get("benchmarks") or checked
    if not listed:
        raise ConfigError(f"{source.name}: it has neither tests nor benchmarks")
    score = _SCORES[task.get("ranking_by")]
    only_last = score == "last" and len(listed) > 1
    counted = f"Only the last of {len(listed)} benchmarks counts." if only_last else ""
    typed = [case for case in checked if any(isinstance(value, bool) for value in case.values())]
    dropped = [
        "upstream's eval.py with its own clock: the judge times, empties the cache before every call and checks every "
        "timed output, so a ranking may differ from the one here",
        *(f"{key}: {json.dumps(task[key], default=str)[:120]}" for key in ("gpus", "libraries") if task.get(key)),
        *(f"unknown key {key}" for key in task if key not in _KEYS),
    ]
    ranked = task.get("ranked_timeout") or task.get("benchmark_timeout") or _DEFAULT_S
    return ParsedProblem(
        name=source.name,
        title=source.title,
        statement=f"{str(task.get('description') or '').strip()}\n\n{counted}".strip(),
        format="gpumode",
        files=files,
        spec={"reference": reference},
        tests=[*(_case(case, source, True) for case in checked), *(_case(case, source, False) for case in typed)],
        benchmarks=[_case(case, source, True) for case in (listed[-1:] if score == "last" else listed)],
        listing=body,
        called="`custom_kernel(data)`: `data` is what `generate_input` returns; it returns what `ref_kernel` does.",
        origin={**source.origin, "inferred": _inferred(task, files, listed, source), "dropped": dropped},
        support={name: text for name, text in files.items() if name.endswith(".py") and name != reference},
        score=score,
        limits=Limits(120.0, float(task.get("test_timeout") or _DEFAULT_S), float(ranked), 16384),
        seeds=(reference_seed(f"{body.rstrip()}\n\n\ncustom_kernel = ref_kernel\n"),),
        good=source.good,
        bad=source.bad,
        languages=("python", "triton", "cuda", "hip", "cpp"),
    )


def _source(folder: Path, task: Json) -> TaskSource:
    sources = {str(entry.get("name", "")): str(entry.get("source", "")) for entry in task["files"]}
    judged = folder / sources.get("eval.py", "eval.py")
    return TaskSource(
        slug(f"{folder.parent.name}-{folder.name}"),
        f"{folder.name} (GPU MODE)",
        {"format": "gpumode", "path": str(folder), **provenance(folder)},
        tuple(_solutions(folder / "solutions" / "correct")),
        tuple(_solutions(folder / "solutions" / "wrong")),
        read_text(judged.resolve()) if judged.is_file() else "",
    )


def _files(folder: Path, task: Json) -> dict[str, str]:
    sources = {str(entry.get("name", "")): str(entry.get("source", "")) for entry in task["files"]}
    taken = {name: source for name, source in sources.items() if source != SLOT and is_support(name)}
    return {name: read_text((folder / source).resolve()) for name, source in taken.items()}


def is_support(name: str) -> bool:
    """Whether a file of a task lies beside its submissions here: all but upstream's own harness and odd ones."""
    known = FILE_NAME.fullmatch(name) is not None and name.endswith(_ENDINGS)
    return known and name not in ("eval.py", "submission.py")


def reference_seed(text: str, files: Mapping[str, str] | None = None) -> Seed:
    """The reference as a candidate: what every speed-up is claimed against."""
    return Seed("00_reference.py", Kernel("python", {"00_reference.py": text, **(files or {})}), baseline=True)


def _solutions(folder: Path) -> Iterator[Seed]:
    for file in sorted(folder.glob("*.py")):
        body = read_text(file)
        yield Seed(file.name, Kernel(detect_language(file.name, body), {file.name: body}))


def _case(case: Mapping[str, Any], source: TaskSource, as_words: bool) -> SeededParams:
    """as_words: with truth values as upstream's text files of cases make of them."""
    params = {key: value for key, value in case.items() if key != "seed"}
    if as_words:
        params = {key: str(value) if isinstance(value, bool) else value for key, value in params.items()}
    if _TYPED.search(source.eval_text):
        params = {key: value == "true" if value in ("true", "false") else value for key, value in params.items()}
    return params, int(case.get("seed", 0))


def _inferred(
    task: Json, files: Mapping[str, str], timed: Sequence[Mapping[str, Any]], source: TaskSource
) -> list[str]:
    """What is made of a task that it does not say, in sentences."""
    cases = [*(task.get("tests") or ()), *timed]
    flags = sorted({key for case in cases for key, value in case.items() if isinstance(value, bool)})
    sentences = {
        "ranking_by is not given, which means last": "ranking_by" not in task,
        f"only the last of {len(timed)} benchmarks counts, so only that one is timed": len(timed) > 1
        and _SCORES[task.get("ranking_by")] == "last",
        f"{', '.join(flags)} arrive as the words True and False, as upstream's text files make of them; typed ones are "
        "checked besides": flags,
        "its files say cuda; on a CPU that means the CPU": any(map(_SAYS_CUDA.search, files.values())),
        "its eval.py makes truth values of the words true and false, and so does this": _TYPED.search(source.eval_text),
    }
    return [line for line, so in sentences.items() if so]
