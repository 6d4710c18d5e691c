"""Submissions to GPU MODE's service: one at a time, not too often, and none made twice after a crash.

Each is noted before it is made, in a file of a folder that all who submit share. Tests and benchmarks are streamed,
ranked submissions polled; whoever is busy is asked again until the deadline.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from ksflow.errors import UNREADABLE, ConfigError
from ksflow.evaluation.processes.deadline import locked_within
from ksflow.evaluation.remote import popcorn_results as results
from ksflow.evaluation.remote.popcorn_client import Busy, Lost, Refused, Service
from ksflow.evaluation.remote.popcorn_results import SubmissionResult
from ksflow.home import write
from ksflow.kernels.languages import LANGUAGES
from ksflow.records import Kernel, digest

_LONGEST_PAUSE_S = 300.0
_TURN_S = 7200.0  # for another process' submission
_TRIES = 6
"""Of one question, while the service says neither yes nor when; of one submission, while it is lost."""

T = TypeVar("T")


@dataclass(frozen=True)
class SubmissionWork:
    """What is submitted, and until when its end is waited for."""

    board: str
    gpu: str
    mode: str
    text: str
    deadline: float

    @property
    def path(self) -> str:
        return f"{self.board}/{self.gpu}/{self.mode}"


def unfit(kernel: Kernel) -> str:
    """Return why the service cannot be sent a kernel, "" if it can."""
    if not LANGUAGES[kernel.language].python:
        return f"the service takes one Python file, not {kernel.language}; CUDA and HIP go inside, through load_inline"
    if len(kernel.files) > 1:
        return f"the service takes one file, this kernel has {len(kernel.files)}: {', '.join(kernel.files)}"
    return ""


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """The one submission in flight. Waits while another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as lock:
        if not locked_within(lock.fileno(), 0):
            structlog.get_logger("ksflow.popcorn").warning("another process submits; waiting for its end")
            if not locked_within(lock.fileno(), _TURN_S):
                words = f"another process has submitted for {_TURN_S:g} s without an end"
                raise ConfigError(f"{words}: end it (fuser -v {folder / 'lock'})")
        yield


@dataclass(frozen=True)
class Submitter:
    """Submits as one user of the service."""

    service: Service
    folder: Path
    interval_s: float  # between two submissions
    poll_s: float  # between two looks at a ranked one
    pause_s: float  # before the first retry

    def __call__(self, work: SubmissionWork, kernel: str) -> SubmissionResult:
        """The end of a submission: of one that was under way when the program ended, else of a new one.

        kernel: names the text. Raises Refused, ConfigError; Busy or Lost where the deadline comes before an answer.
        """
        note = self.folder / f"{digest(self.service.url, work.path, kernel, digits=24)}.json"
        name, number = _noted(note)
        try:
            for _ in range(_TRIES):
                if name and number is None:
                    number = self._patiently(partial(self.service.find, work.board, name), work)
                if number is None:
                    name = name or f"kernel_{secrets.randbelow(10**12):012}.py"  # no other submission has it
                    _keep(note, name, None)
                    answer, number = self._posted(name, work)
                    if answer is None and number is None:
                        continue  # nobody knows whether it is there
                    _keep(note, name, number)
                if number is not None:
                    answer = self._polled(number, work)
                if answer is not None:
                    note.unlink()
                    return answer
                name, number = "", None  # the service has lost it
        except (Refused, ConfigError):
            note.unlink(missing_ok=True)
            raise
        raise Lost("submissions are lost again and again")

    def _posted(self, name: str, work: SubmissionWork) -> tuple[SubmissionResult | None, int | None]:
        """The streamed answer, or the number of one that has to be polled; neither after a lost connection."""

        def post() -> tuple[SubmissionResult | None, int | None]:
            self._pace()
            if work.mode == "leaderboard":
                return None, self.service.post(work.path, name, work.text)
            with contextlib.closing(self.service.stream_submission(work.path, name, work.text)) as events:
                for event in events:
                    if event["event"] == "result":
                        return results.parse_stream_end(event), None
                    if time.monotonic() > work.deadline:
                        break
            raise Lost("the job still runs")  # a stream that ends without a result raises Lost itself

        try:
            return self._patiently(post, work, lost=False)
        except Lost as error:
            self._wait(self.pause_s, error, work)
            return None, None

    def _pace(self) -> None:
        """Wait until the next submission may be made, and note that it is made now."""
        mark = self.folder / "last"
        since = time.time() - mark.stat().st_mtime if mark.exists() else self.interval_s
        if 0 <= since < self.interval_s:
            time.sleep(self.interval_s - since)
        mark.touch()

    def _polled(self, number: int, work: SubmissionWork) -> SubmissionResult | None:
        """The end of a submission, once it is there. None where the service has lost it or ran nothing of it."""
        while True:
            submission = self._patiently(lambda: self.service.submission(number), work)
            if submission is None:
                return None
            answer = results.parse_submission(submission)
            if answer is not None:
                return None if answer.empty else answer
            self._wait(self.poll_s, Busy(f"submission {number} still runs"), work, tell=False)

    def _patiently(self, ask: Callable[[], T], work: SubmissionWork, lost: bool = True) -> T:
        """What the service says, asked again while it is busy; after a lost connection where that submits nothing."""
        pause, left = self.pause_s, _TRIES
        while True:
            left -= 1
            try:
                return ask()
            except Busy as busy:
                if busy.after_s is None and not left:
                    raise
                self._wait(max(pause, busy.after_s or 0.0), busy, work)
            except Lost as error:
                if not (lost and left):
                    raise
                self._wait(pause, error, work)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _wait(self, seconds: float, why: Busy | Lost, work: SubmissionWork, tell: bool = True) -> None:
        """Raises `why` where there is no time left for it."""
        if time.monotonic() + seconds > work.deadline:
            raise why
        if tell:
            structlog.get_logger("ksflow.popcorn").warning("waiting for the service", seconds=seconds, why=str(why))
        time.sleep(seconds)


def _noted(note: Path) -> tuple[str, int | None]:
    """Name and number of the submission that a program made which did not see its end; no name where there is none."""
    try:
        entry = json.loads(note.read_text(encoding="utf-8"))
        return str(entry["name"]), entry["id"] if type(entry["id"]) is int else None
    except UNREADABLE:
        return "", None


def _keep(note: Path, name: str, number: int | None) -> None:
    write(note, json.dumps({"name": name, "id": number}))
