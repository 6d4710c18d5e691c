"""A task as GPU MODE's service has it, for `evaluator=popcorn`.

    problem=popcorn problem.leaderboard=vectoradd_v2 evaluator=popcorn evaluator.gpu=H100

The service tells everybody the whole task: its files, cases and how it ranks. What it said is kept in the user's cache
and used where the service cannot be reached. Cases are the service's, at their full sizes. The reference is run here
at small sizes, to tell what a kernel is given; `problem.local=false` leaves that out.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.formats.assembly import ParsedProblem, problem, slug
from ksflow.formats.cases import Params, named
from ksflow.formats.gpumode import importer
from ksflow.formats.gpumode.importer import Source, beside, understood
from ksflow.problem.loader import suggest
from ksflow.records import Case, Json, Problem, Target

_TIMEOUT_S = 30.0
_LARGEST = 64 << 20
_KEPT = ("lang", "files", "tests", "benchmarks", "ranking_by", "multi_gpu", "libraries", *importer.TIMEOUTS)
"""What is kept of a task. Not its secret seed, should a service tell it."""
_LANGUAGES = ("python", "triton")
_TAKEN = (
    "The service takes one Python file of at most 1 MB, which may use Triton, or CUDA and HIP through load_inline; it "
    "refuses a file with the word `stream` anywhere, in comments and names too."
)


def load(
    service: str,
    leaderboard: str | None = None,
    local: bool = True,
    refresh: bool = False,
    target: Target | None = None,
) -> Problem:
    """The leaderboard's task. ConfigError.

    service: where it is. local: run its reference here, at small sizes, if it runs. refresh: ask, though it is cached.
    """
    if not leaderboard:
        raise ConfigError("problem=popcorn needs problem.leaderboard=NAME")
    board = _board(service.rstrip("/"), leaderboard, refresh)
    task = board["task"]
    where = f"{service}: leaderboard {leaderboard}"
    importer.fit(task, where)
    files = {
        name: body for name, body in _strings(task.get("files")).items() if beside(name) and body != "@SUBMISSION@"
    }
    origin: Json = {"format": "popcorn", "path": service, "leaderboard": leaderboard}
    origin |= {"gpus": ", ".join(map(str, board.get("gpu_types") or ())), "deadline": str(board.get("deadline") or "")}
    told = {**task, "description": board.get("description")}
    read = understood(told, files, Source(slug(leaderboard), f"{leaderboard} (GPU MODE)", origin))
    read = replace(read, tests=read.tests[: len(task.get("tests") or ())], called=f"{read.called} {_TAKEN}")
    base = _tried(read, target) if local else _alone(read)
    benchmarks = _cases(read.benchmarks)
    identity = json.dumps([task, read.score], sort_keys=True, default=str)
    return replace(
        base,
        languages=_LANGUAGES,
        tests=_cases(read.tests) or benchmarks,
        benchmarks=benchmarks,
        dims=(),
        digest=hashlib.sha256(identity.encode()).hexdigest()[:16],
        origin={**base.origin, "cap": None, "cases": "the service's, at their full sizes"},
    )


def _tried(read: ParsedProblem, target: Target | None) -> Problem:
    """With what running the reference here at small sizes tells, where it runs."""
    try:
        made = problem(read, target)
    except ConfigError as error:
        inferred = [*read.origin["inferred"], f"nothing is known of its arguments: {error}"]
        return _alone(replace(read, origin={**read.origin, "inferred": inferred}))
    return replace(made, origin=read.origin)


def _alone(read: ParsedProblem) -> Problem:
    """The problem, with nothing run here. Its cases are still to come."""
    return Problem(
        name=read.name,
        title=read.title,
        description=str(read.origin["path"]),
        statement=read.statement,
        root="",
        reference=read.listing,
        languages=_LANGUAGES,
        args=(),
        dims=(),
        tests=(),
        benchmarks=(),
        seeds=read.seeds,
        score=read.score,
        limits=read.limits,
        files=read.support,
        called=read.called,
        listing=read.listing,
        origin=read.origin,
    )


def _cases(cases: Any) -> tuple[Case, ...]:
    """Each with a name of its own."""
    made: dict[str, Case] = {}
    for params, seed in cases:
        name = _name(params, seed, made)
        made[name] = Case(name, dict(params), seed)
    return tuple(made.values())


def _name(params: Params, seed: int, taken: Mapping[str, Case]) -> str:
    name = named(params)
    return name if name not in taken else f"{name} seed={seed}"


def _board(service: str, leaderboard: str, refresh: bool) -> Json:
    """What the service says of a leaderboard, or said before."""
    name = hashlib.sha256(f"{service}\0{leaderboard}".encode()).hexdigest()[:24]
    kept = home.cache("popcorn", f"{name}.json")
    if kept.exists() and not refresh:
        found: Json = json.loads(kept.read_text(encoding="utf-8"))
        return found
    boards = {str(row.get("name")): row for row in _asked(service) if isinstance(row, dict)}
    row = boards.get(leaderboard)
    if row is None:
        raise ConfigError(f"{service} has no leaderboard {leaderboard!r}; {suggest(leaderboard, boards)}")
    if not isinstance(row.get("task"), dict):
        raise ConfigError(f"{service}: leaderboard {leaderboard} has no task")
    board = {key: row.get(key) for key in ("name", "deadline", "description", "gpu_types")}
    board["task"] = {key: row["task"][key] for key in _KEPT if key in row["task"]}
    kept.parent.mkdir(parents=True, exist_ok=True)
    home.write(kept, json.dumps(board, default=str))
    return board


def _asked(service: str) -> list[Any]:
    try:
        with httpx.stream("GET", f"{service}/leaderboards", timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            body = b""
            for part in answer.iter_bytes():
                body += part
                if len(body) > _LARGEST:
                    raise ConfigError(f"{service}/leaderboards is longer than {_LARGEST >> 20} MiB")
        found = json.loads(body)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(f"{service} does not tell its leaderboards: {why}; correct problem.service") from error
    return found if isinstance(found, list) else []


def _strings(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}
