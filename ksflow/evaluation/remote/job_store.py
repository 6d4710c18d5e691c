"""The folder between those who ask for verdicts and those who give them: its files, and what may be in them.

    jobs/<id>.json         what is to be judged: the problem, the kernels and the target, whole
    results/<id>.json      the judge's word on it
    taken/<id>.json        results that were used: each answers one question, once
    claims/<id>            a worker judges it, and touches this file while it lives
    workers/<name>.json    who is there, and which jobs it refuses
    worker/                the code a worker runs (`worker_payload`)

An id is the SHA-256 of the job, which holds everything that could change its verdict, and the number of times that it
was answered before. Files are JSON, written whole or not at all, and believed only when every field fits its record.
Covered: partial copies, bit rot, strange files. NOT covered: forgery. Who can write here can give verdicts, and have
code run on the workers. Standard library only.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.records import Evaluation, Json, Kernel, Origin, Problem, Target, Trial, as_json, parse

VERSION = 1
LARGEST = 16 << 20  # bytes of a file
NAME = re.compile(r"[0-9a-f]{32}-[0-9]{1,6}")  # matches an id
_FOLDERS = ("jobs", "results", "taken", "claims", "workers")

T = TypeVar("T")


class InvalidFile(ValueError):
    """A whole file that does not hold what it should."""


@dataclass(frozen=True)
class Opponent:
    """A kernel to be timed beside the judged one."""

    id: str
    kernel: Kernel | None


@dataclass(frozen=True)
class JudgeJob:
    """One question, with everything that its answer depends on."""

    judge: str
    """The judge's name and version."""
    problem: Problem
    """Without its texts and its seeds; `root` is empty, `reference` is the text to run."""
    kernel: Kernel
    against: tuple[Opponent, ...]
    target: Target

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The rivals, as an evaluator wants them."""
        return tuple(Trial(rival.id, Origin.SEED, kernel=rival.kernel) for rival in self.against)


def job(judge: str, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...], target: Target) -> JudgeJob:
    """A question, without what no verdict depends on."""
    bare = replace(problem, title="", description="", statement="", listing="", called="", origin={}, heldout=())
    bare = replace(bare, root="", seeds=(), good=(), bad=())
    rivals = tuple(Opponent(trial.id, replace(trial.kernel, report="") if trial.kernel else None) for trial in versus)
    return JudgeJob(judge, bare, replace(kernel, report=""), rivals, target)


def folder_path(folder: str) -> Path:
    """The folder that a person named. ConfigError: a URL."""
    if "://" in folder:
        raise ConfigError(
            f"{folder} is a URL, and the spool is a folder: share one, have rclone or the store's own tool keep one in "
            "step on both sides (docs/gpu_elsewhere.md), or use evaluator=ray"
        )
    return Path(folder).expanduser()


class JobStore:
    """The folder. OSError where it cannot be used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs, self.results, self.taken, self.claims, self.workers = (root / name for name in _FOLDERS)

    def make(self) -> None:
        """Have its folders."""
        for name in _FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def post(self, job: JudgeJob) -> str:
        """Put a job up, unless it is, or its result is there; its id."""
        body = as_json(job)
        base, attempt = _digest(body), 0
        while (self.taken / f"{base}-{attempt}.json").exists():
            attempt += 1
        name = f"{base}-{attempt}"
        with contextlib.suppress(InvalidFile):
            if self.result(name) or self.job(name):
                return name
        write(self.jobs / f"{name}.json", {"version": VERSION, "id": name, "job": body})
        return name

    def job(self, name: str) -> JudgeJob | None:
        """The job, or None where it is not there whole. InvalidFile where it is not what its id says."""
        content = read_json(self.jobs / f"{name}.json")
        if content and _digest(content.get("job")) != name.partition("-")[0]:
            raise InvalidFile("its content is not what its name says")
        return _record(JudgeJob, content, {"version": VERSION, "id": name}, "job")

    def answer(self, name: str, evaluation: Evaluation) -> None:
        """Put a result up. ValueError where the evaluation is no JSON, or too large."""
        body = as_json(evaluation)
        write(self.results / f"{name}.json", {"version": VERSION, "id": name, "digest": _digest(body), "result": body})

    def result(self, name: str) -> Evaluation | None:
        """The result, also one that was taken; None where it is not there whole. InvalidFile where it is damaged."""
        content = read_json(self.results / f"{name}.json") or read_json(self.taken / f"{name}.json")
        head = {"version": VERSION, "id": name, "digest": _digest(content.get("result")) if content else ""}
        return _record(Evaluation, content, head, "result")

    def take(self, name: str) -> None:
        """The result is used: the next who asks the same is asking anew. The job goes first: else it has no answer."""
        (self.jobs / f"{name}.json").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.results / f"{name}.json", self.taken / f"{name}.json")


def write(path: Path, value: Json) -> None:
    """All of it or nothing, and on disk when this returns. ValueError where it is no JSON, or too large."""
    data = json.dumps(value, allow_nan=False).encode()
    if len(data) > LARGEST:
        raise ValueError(f"{len(data)} bytes are more than the {LARGEST} of a file in the folder")
    home.write(path, data, durable=True)


def read_json(path: Path) -> Json | None:
    """The object in a plain file; None where there is none, or not all of it yet. PermissionError."""
    try:  # never waits for a pipe, never follows a link
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            value = json.loads(file.read(LARGEST), parse_constant=_finite, parse_float=_finite)
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _digest(body: object) -> str:
    """Of the JSON as it lies in the file: the order of a kernel's files counts."""
    return hashlib.sha256(json.dumps(body, allow_nan=False).encode()).hexdigest()[:32]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def _record(kind: type[T], content: Json | None, head: Json, key: str) -> T | None:
    """What a file holds under a key, if the rest of it is `head`; None where there is no file. InvalidFile."""
    if content is None:
        return None
    if content != {**head, key: content.get(key)}:
        raise InvalidFile(f"not version {VERSION} of the format, the file of another id, or not what was written")
    try:
        return parse(kind, content[key])
    except (ValueError, TypeError) as error:
        raise InvalidFile(f"not a {kind.__name__.lower()}: {error}") from error
