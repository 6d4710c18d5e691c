"""GPU MODE's tasks: a folder with `task.yml`, `reference.py` and what they name.

    problem=gpumode problem.path=~/reference-kernels/problems/amd/fp8-mm
    problem=gpumode problem.root=~/reference-kernels problem.name=amd-fp8-mm       the leaderboard's name

Upstream's cases travel as text, which makes strings of booleans; `fidelity=upstream` does the same and checks the typed
ones besides. How upstream times (seven generations of eval.py) is not repeated: the judge's own clock counts.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ksflow.errors import ConfigError
from ksflow.formats.assembly import Fit, ParsedProblem, problem, slug, text
from ksflow.formats.cases import Params, agree
from ksflow.formats.gpumode import harness
from ksflow.problem.loader import suggest
from ksflow.records import FILE_NAME, Json, Kernel, Limits, Problem, Seed, Target, language

_FIDELITIES = ("upstream", "typed")
_SCORES = {"last": "last", "mean": "mean", "geom": "geomean", None: "last"}
_KEYS = {
    "files", "lang", "description", "config", "templates", "tests", "benchmarks", "test_timeout", "benchmark_timeout",
    "ranked_timeout", "ranking_by", "multi_gpu", "gpus", "libraries", "seed",
}  # fmt: skip
TIMEOUTS = ("test_timeout", "benchmark_timeout", "ranked_timeout")
_SLOT = "@SUBMISSION@"
_ENDINGS = (".py", ".yml", ".yaml", ".json", ".h", ".cuh", ".txt")
_WORDS = ("True", "False")
_DEFAULT_S = 180.0


def load(  # noqa: PLR0913 - what a user may say of a task
    path: str | None = None,
    root: str | None = None,
    name: str | None = None,
    tests: Sequence[Mapping[str, Any]] | None = None,
    benchmarks: Sequence[Mapping[str, Any]] | None = None,
    fidelity: str = "upstream",
    device: str = "auto",
    cap: int | str | None = "auto",
    target: Target | None = None,
) -> Problem:
    """The task in a folder, or of a leaderboard's name below a checkout. ConfigError.

    tests, benchmarks: other cases than the task's. device: `cpu` has `cuda` mean the CPU. cap: see `made.problem`.
    """
    if fidelity not in _FIDELITIES:
        raise ConfigError(f"problem.fidelity={fidelity}; {suggest(fidelity, _FIDELITIES)}")
    folder = _folder(path, root, name)
    task = _task(folder / "task.yml")
    files = dict(_files(folder, task))
    read = understood(task, files, _source(folder, task, fidelity), tests, benchmarks)
    return problem(read, None if device == "cpu" else target, cap, Fit())


def _folder(path: str | None, root: str | None, name: str | None) -> Path:
    if path:
        folder = Path(path).expanduser()
        folder = folder.parent if folder.name == "task.yml" else folder
    elif root and name:
        folder = _listed(Path(root).expanduser(), name)
    else:
        raise ConfigError(
            "problem=gpumode needs problem.path=FOLDER, or problem.root=CHECKOUT problem.name=LEADERBOARD"
        )
    if not (folder / "task.yml").is_file():
        raise ConfigError(f"no task.yml in {folder}; problem.path is the folder that holds it")
    return folder.resolve()


def _listed(root: Path, name: str) -> Path:
    """The folder of a leaderboard, or of a task, below a checkout."""
    boards: dict[str, Path] = {}
    base = root / "problems" if (root / "problems").is_dir() else root
    for file in sorted(base.glob("*.yaml")):
        listed = _yaml(file)
        entries = listed.get("problems") if isinstance(listed, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                boards[str(entry.get("name"))] = base / str(entry.get("directory", ""))
    for file in sorted(base.glob("*/*/task.yml")):
        boards.setdefault(f"{file.parent.parent.name}/{file.parent.name}", file.parent)
    if name not in boards:
        raise ConfigError(f"no leaderboard {name!r} below {base}; {suggest(name, boards)}")
    return boards[name]


def _task(file: Path) -> Json:
    task = _yaml(file)
    if not isinstance(task, dict) or not isinstance(task.get("files"), list):
        raise ConfigError(f"{file} is no task: it has no list `files`")
    if not all(isinstance(entry, Mapping) for entry in task["files"]):
        raise ConfigError(f"{file}: files is not a list of mappings")
    if not isinstance(task.get("templates") or {}, Mapping):
        raise ConfigError(f"{file}: templates is not a mapping of languages to files")
    fit(task, str(file))
    return task


def _yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(text(file))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of a date that is none
        raise ConfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from error


def fit(task: Json, where: str) -> None:
    """ConfigError where a task is one that cannot be judged here or elsewhere."""
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
class Source:
    """Where a task is from, and what came with it beside the task."""

    name: str
    title: str
    origin: Json
    fidelity: str = "upstream"
    good: tuple[Seed, ...] = ()
    bad: tuple[Seed, ...] = ()
    harness: str = ""
    """The text of its `eval.py`, which is not run: what it does otherwise is said."""


def understood(
    task: Json,
    files: Mapping[str, str],
    source: Source,
    tests: Sequence[Mapping[str, Any]] | None = None,
    benchmarks: Sequence[Mapping[str, Any]] | None = None,
) -> ParsedProblem:
    """A task's meaning. files: what lies beside a submission. tests, benchmarks: in place of its own. ConfigError."""
    where, fidelity = source.name, source.fidelity
    reference = next((name for name in ("reference.py", *files) if _binds(files.get(name, ""), "generate_input")), "")
    if not reference:
        raise ConfigError(
            f"{where}: none of its files defines generate_input ({', '.join(files)}); a task whose own eval.py asks "
            "for something else cannot be judged here"
        )
    for key, given in (("tests", tests), ("benchmarks", benchmarks)):
        agree(files[reference], given, f"problem.{key}")
    said = tests if tests is not None else task.get("tests") or []
    listed = benchmarks if benchmarks is not None else task.get("benchmarks") or said
    if not listed:
        raise ConfigError(f"{where}: it has neither tests nor benchmarks; give problem.benchmarks=[...]")
    score = _SCORES[task.get("ranking_by")]
    dropped, inferred = _remarks(task, files, listed, score, fidelity)
    dropped[1:1] = harness.clock(source.harness)
    inferred += harness.words(source.harness)
    timed = listed[-1:] if score == "last" else listed
    typed = [case for case in said if fidelity == "upstream" and _stringly(case) != dict(case)]
    own = source.harness
    cases = [_case(case, fidelity, own) for case in said] + [_case(case, "typed", own) for case in typed]
    return ParsedProblem(
        name=source.name,
        title=source.title,
        statement=_statement(task, listed, score),
        kind="gpumode",
        files=files,
        spec={"reference": reference},
        tests=cases,
        benchmarks=[_case(case, fidelity, own) for case in timed],
        listing=files[reference],
        called="`custom_kernel(data)`: `data` is what `generate_input` returns; it returns what `ref_kernel` does.",
        origin={**source.origin, "inferred": inferred, "dropped": dropped},
        support={name: body for name, body in files.items() if name.endswith(".py") and name != reference},
        score=score,
        limits=_limits(task),
        seeds=(_reference_seed(files[reference]),),
        good=source.good,
        bad=source.bad,
        languages=("python", "triton", "cuda", "hip", "cpp"),
    )


def _source(folder: Path, task: Json, fidelity: str) -> Source:
    templates = {str(language): str(name) for language, name in (task.get("templates") or {}).items()}
    origin: Json = {"format": "gpumode", "path": str(folder), **provenance(folder)}
    if templates:
        origin["templates"] = ", ".join(f"{name} ({language})" for language, name in templates.items())
    return Source(
        slug(f"{folder.parent.name}-{folder.name}"),
        f"{folder.name} (GPU MODE)",
        origin,
        fidelity,
        tuple(_solutions(folder / "solutions" / "correct")),
        tuple(_solutions(folder / "solutions" / "wrong")),
        _harness(folder, task),
    )


def _files(folder: Path, task: Json) -> Iterator[tuple[str, str]]:
    for entry in task["files"]:
        name, source = str(entry.get("name", "")), str(entry.get("source", ""))
        if source != _SLOT and beside(name):
            yield name, text((folder / source).resolve())


def _harness(folder: Path, task: Json) -> str:
    """The text of what upstream runs; empty where the task has none."""
    sources = {str(entry.get("name", "")): str(entry.get("source", "")) for entry in task["files"]}
    file = folder / sources.get("eval.py", "eval.py")
    return text(file.resolve()) if file.is_file() else ""


def _binds(body: str, name: str) -> bool:
    """Whether a module's text gives a meaning to a name at its top level, also inside of `if` and `try`."""
    if name not in body:
        return False
    try:
        nodes = list(ast.walk(ast.parse(body)))
    except SyntaxError:  # running it says what is wrong
        return True
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {each.asname or each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}
    return name in functions | names | imported


def beside(name: str) -> bool:
    """Whether a file of a task lies beside its submissions here: all but upstream's own harness and odd ones."""
    known = FILE_NAME.fullmatch(name) is not None and name.endswith(_ENDINGS)
    return known and name not in ("eval.py", "submission.py")


def _reference_seed(text: str) -> Seed:
    """The reference as a candidate: what every speed-up is claimed against."""
    body = f"{text.rstrip()}\n\n\ncustom_kernel = ref_kernel\n"
    return Seed("00_reference.py", Kernel("python", {"00_reference.py": body}), baseline=True)


def _solutions(folder: Path) -> Iterator[Seed]:
    for file in sorted(folder.glob("*.py")):
        body = text(file)
        yield Seed(file.name, Kernel(language(file.name, body), {file.name: body}))


def _case(case: Mapping[str, Any], fidelity: str, own: str) -> tuple[Params, int]:
    params = {key: value for key, value in case.items() if key != "seed"}
    told = _stringly(params) if fidelity == "upstream" else params
    return harness.typed(own, told), int(case.get("seed", 0))


def _stringly(params: Mapping[str, Any]) -> dict[str, Any]:
    """As upstream's text files of cases make of them."""
    return {key: str(value) if isinstance(value, bool) else value for key, value in params.items()}


def _limits(task: Json) -> Limits:
    ranked = float(task.get("ranked_timeout") or task.get("benchmark_timeout") or _DEFAULT_S)
    return Limits(120.0, float(task.get("test_timeout") or _DEFAULT_S), ranked, 16384)


def _statement(task: Json, listed: Sequence[Mapping[str, Any]], score: str) -> str:
    counted = f"Only the last of {len(listed)} benchmarks counts." if score == "last" and len(listed) > 1 else ""
    return f"{str(task.get('description') or '').strip()}\n\n{counted}".strip()


def _remarks(
    task: Json, files: Mapping[str, str], timed: Sequence[Mapping[str, Any]], score: str, fidelity: str
) -> tuple[list[str], list[str]]:
    """(what was dropped, what was inferred)."""
    dropped = ["upstream's eval.py with its own clock: the judge times, and checks every timed output"]
    dropped += [f"{key}: {json.dumps(task[key], default=str)[:120]}" for key in ("gpus", "libraries") if task.get(key)]
    dropped += [f"unknown key {key}" for key in task if key not in _KEYS]
    inferred = []
    if "ranking_by" not in task:
        inferred.append("ranking_by is not given, which means last")
    if score == "last" and len(timed) > 1:
        inferred.append(f"only the last of {len(timed)} benchmarks counts, so only that one is timed")
    cases = [*(task.get("tests") or ()), *timed]
    flags = sorted({key for case in cases for key, value in case.items() if isinstance(value, bool)})
    if flags and fidelity == "upstream":
        inferred.append(
            f"{', '.join(flags)} arrive as the words {' and '.join(_WORDS)}, as upstream's text files make of them; "
            "typed ones are checked besides (problem.fidelity=typed for those alone)"
        )
    if any(re.search(r"device\s*=\s*f?['\"]cuda|\.cuda\(", body) for body in files.values()):
        inferred.append("its files say cuda; on a CPU that means the CPU")
    return dropped, inferred


def provenance(folder: Path) -> Json:
    """Commit and licence of the checkout that a folder is in. Outside of one only a licence file in the folder itself
    counts: what lies above it may belong to anything.
    """
    above = (folder, *folder.parents)
    root = next((parent for parent in above if (parent / ".git").exists()), None)
    inside = above[: above.index(root) + 1] if root else above[:1]
    found: Json = {}
    licences = (sorted(file for file in parent.glob("LICEN[SC]E*") if file.is_file()) for parent in inside)
    if files := next(filter(None, licences), None):
        found["licence"] = (files[0].read_text(errors="replace").strip().splitlines() or [""])[0].strip()[:80]
    if root:
        found["commit"] = _commit(root / ".git")
    return found


def _commit(git: Path) -> str:
    """What HEAD is, read without git. Empty where it cannot be."""
    try:
        if git.is_file():  # of a submodule: it says where the folder is
            git = git.parent / git.read_text().strip().removeprefix("gitdir: ")
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (git / ref).is_file():
            return (git / ref).read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {ref}")), "")
    except (OSError, UnicodeDecodeError):
        return ""
