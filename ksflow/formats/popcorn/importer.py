"""A task as GPU MODE's service has it, for `evaluator=popcorn`.

    problem=popcorn problem.leaderboard=vectoradd_v2 evaluator=popcorn evaluator.gpu=H100

The service tells everybody the whole task: its files, cases and how it ranks. What it said is kept in the user's cache
and used where the service cannot be reached. Cases are the service's, at their full sizes. The reference is run here
at small sizes, to tell what a kernel is given; `problem.local=false` leaves that out.
"""

import json
from dataclasses import replace

import httpx

from ksflow import home
from ksflow.errors import ConfigError, suggest
from ksflow.formats.assembly import as_case, assemble
from ksflow.formats.cases import build_cases
from ksflow.formats.checkout import slug
from ksflow.formats.gpumode import importer
from ksflow.records import Json, Problem, Target, digest

_TIMEOUT_S = 30.0
_KEPT = ("lang", "files", "tests", "benchmarks", "ranking_by", "multi_gpu", "libraries", *importer.TIMEOUTS)
"""What is kept of a task: not its secret seed."""
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

    leaderboard: its name, as `popcorn` lists it. service: where it is. local: run its reference here, at small sizes,
    if it runs. refresh: ask, though it is cached.
    """
    if not leaderboard:
        raise ConfigError("problem=popcorn needs problem.leaderboard=NAME")
    board = _board(service.rstrip("/"), leaderboard, refresh)
    task = board["task"]
    importer.check_task(task, f"{service}: leaderboard {leaderboard}")
    listed = task.get("files") if isinstance(task.get("files"), dict) else {}
    files = {str(name): str(body) for name, body in listed.items()}
    files = {name: body for name, body in files.items() if importer.is_support(name) and body != importer.SLOT}
    gpus, deadline = ", ".join(map(str, board.get("gpu_types") or ())), str(board.get("deadline") or "")
    origin = {"format": "popcorn", "path": service, "leaderboard": leaderboard, "gpus": gpus, "deadline": deadline}
    source = importer.TaskSource(slug(leaderboard), f"{leaderboard} (GPU MODE)", origin)
    parsed = importer.parse({**task, "description": board.get("description")}, files, source)
    parsed = replace(parsed, tests=parsed.tests[: len(task.get("tests") or ())], called=f"{parsed.called} {_TAKEN}")
    cases = build_cases(parsed.tests, parsed.benchmarks, None)
    tests, benchmarks = (tuple(as_case(case) for case in cases if case["test"] is test) for test in (True, False))
    identity = json.dumps([task, parsed.score], sort_keys=True, default=str)
    base = parsed.problem()
    if local:  # running the reference at small sizes tells what its arguments are, where it runs
        try:
            base = replace(assemble(parsed, target), origin=parsed.origin)
        except ConfigError as error:
            inferred = [*parsed.origin["inferred"], f"nothing is known of its arguments: {error}"]
            base = parsed.problem(origin={**parsed.origin, "inferred": inferred})
    return replace(
        base,
        description=service,
        languages=_LANGUAGES,
        tests=tests or benchmarks,
        benchmarks=benchmarks,
        dims=(),
        digest=digest(identity),
        origin={**base.origin, "cap": None, "cases": "the service's, at their full sizes"},
    )


def _board(service: str, leaderboard: str, refresh: bool) -> Json:
    """What the service says of a leaderboard, or said before."""
    name = digest(service, leaderboard, digits=24)
    file = home.cache("popcorn", f"{name}.json")
    if file.exists() and not refresh:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    try:
        listed = httpx.get(f"{service}/leaderboards", timeout=_TIMEOUT_S).raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(f"{service} does not tell its leaderboards: {why}; correct problem.service") from error
    rows = listed if isinstance(listed, list) else []
    boards = {str(row.get("name")): row for row in rows if isinstance(row, dict)}
    row = boards.get(leaderboard)
    if row is None:
        raise ConfigError(f"{service} has no leaderboard {leaderboard!r}; {suggest(leaderboard, boards)}")
    if not isinstance(row.get("task"), dict):
        raise ConfigError(f"{service}: leaderboard {leaderboard} has no task")
    board = {key: row.get(key) for key in ("name", "deadline", "description", "gpu_types")}
    board["task"] = {key: row["task"][key] for key in _KEPT if key in row["task"]}
    file.parent.mkdir(parents=True, exist_ok=True)
    home.write(file, json.dumps(board, default=str))
    return board
