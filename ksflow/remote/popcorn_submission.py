"""Submissions to GPU MODE's service: one at a time, not too often, and none made twice after a crash.

Each is noted before it is made. Tests and benchmarks are streamed, ranked submissions polled; whoever is busy is asked
again until the deadline.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import structlog

from ksflow.errors import UNREADABLE, ConfigError
from ksflow.home import write
from ksflow.processes.deadline import locked_within
from ksflow.records import digest
from ksflow.remote import popcorn_results as results
from ksflow.remote.popcorn_client import Busy, Lost, Refused, Service
from ksflow.remote.popcorn_results import Answer

_LONGEST_PAUSE_S = 300.0
_TURN_S = 7200.0
"""For another process' submission."""
_TRIES = 6
"""Of one question, while the service says neither yes nor when."""
_STEPS = 12
"""Of one submission: made, lost, looked for, polled."""

T = TypeVar("T")


@dataclass(frozen=True)
class Submission:
    """A submission, noted before it is made."""

    key: str
    name: str
    """The file's name: no other submission has it, so that this one can be found by it."""
    id: int | None = None
    """The service's number; None until it is known."""
    known: bool = False
    """Whether it was noted earlier, by a program that did not see its end."""


class SubmissionLog:
    """A folder that all who submit share."""

    def __init__(self, folder: Path, interval_s: float) -> None:
        self.folder = folder
        self.interval_s = interval_s

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The one submission in flight. Waits while another process has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("ab") as lock:
            if not locked_within(lock.fileno(), 0):
                structlog.get_logger("ksflow.popcorn").warning("another process submits; waiting for its end")
                if not locked_within(lock.fileno(), _TURN_S):
                    words = f"another process has submitted for {_TURN_S:g} s without an end"
                    raise ConfigError(f"{words}: end it (fuser -v {self.folder / 'lock'})")
            yield

    def pace(self) -> None:
        """Wait until the next submission may be made, and note that it is made now."""
        mark = self.folder / "last"
        since = time.time() - mark.stat().st_mtime if mark.exists() else self.interval_s
        if 0 <= since < self.interval_s:
            time.sleep(self.interval_s - since)
        mark.touch()

    def submission(self, *about: str) -> Submission:
        """The open submission of a submission, or a new one, safe on disk."""
        key = digest(*about, digits=24)
        try:
            entry = json.loads(self._file(key).read_text(encoding="utf-8"))
            return Submission(key, str(entry["name"]), entry["id"] if type(entry["id"]) is int else None, True)
        except UNREADABLE:
            return self.renew(Submission(key, ""))

    def renew(self, submission: Submission) -> Submission:
        """Another submission in its place, with a name of its own."""
        return self.keep(Submission(submission.key, f"kernel_{secrets.randbelow(10**12):012}.py"))

    def done(self, submission: Submission) -> None:
        """Its end was seen."""
        self._file(submission.key).unlink(missing_ok=True)

    def keep(self, submission: Submission) -> Submission:
        """Note what is known of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self._file(submission.key), json.dumps(asdict(submission)))
        return submission

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"


@dataclass(frozen=True)
class Work:
    """What is submitted, and until when its end is waited for."""

    board: str
    gpu: str
    mode: str
    text: str
    deadline: float

    @property
    def path(self) -> str:
        return f"{self.board}/{self.gpu}/{self.mode}"


class Submitter:
    """Submits as one user of the service. poll_s: between two looks; pause_s: before the first retry."""

    def __init__(self, service: Service, log: SubmissionLog, poll_s: float, pause_s: float) -> None:
        self.service, self.log, self.poll_s, self.pause_s = service, log, poll_s, pause_s

    def __call__(self, work: Work, kernel: str) -> Answer:
        """The end of a submission: of one that was under way when the program ended, else of a new one.

        kernel: names the text. Raises Refused, ConfigError; Busy or Lost where the deadline comes before an answer.
        """
        submission = self.log.submission(self.service.url, work.path, kernel)
        answer = None
        try:
            for _ in range(_STEPS):
                if answer is not None:
                    break
                if submission.id is not None:
                    answer = self._polled(submission.id, work)
                    submission = submission if answer else self.log.renew(submission)
                elif submission.known:
                    submission = self._find(submission, work)
                else:
                    submission, answer = self._posted(submission, work)
        except (Refused, ConfigError):
            self.log.done(submission)
            raise
        if answer is None:
            raise Lost("submissions are lost again and again")
        self.log.done(submission)
        return answer

    def _find(self, submission: Submission, work: Work) -> Submission:
        """With its number, where the service has it; else it is not known to anybody yet."""
        number = self._patiently(lambda: self.service.find(work.board, submission.name), work)
        return replace(submission, known=False) if number is None else self.log.keep(replace(submission, id=number))

    def _posted(self, submission: Submission, work: Work) -> tuple[Submission, Answer | None]:
        """Submit. No answer where it has to be polled, or looked for after a lost connection."""

        def post() -> Answer | int:
            self.log.pace()
            if work.mode == "leaderboard":
                return self.service.post(work.path, submission.name, work.text)
            with contextlib.closing(self.service.streamed(work.path, submission.name, work.text)) as events:
                for event in events:
                    if event["event"] == "result":
                        return results.streamed(event)
                    if time.monotonic() > work.deadline:
                        raise Lost("the job still runs")
            raise Lost("the service ended its answer without a result")

        try:
            got = self._patiently(post, work, lost=False)
        except Lost as error:
            self._wait(self.pause_s, error, work)
            return replace(submission, known=True), None
        return (submission, got) if isinstance(got, Answer) else (self.log.keep(replace(submission, id=got)), None)

    def _polled(self, number: int, work: Work) -> Answer | None:
        """The end of a submission, once it is there. None where the service has lost it or ran nothing of it."""
        while True:
            submission = self._patiently(lambda: self.service.submission(number), work)
            if submission is None:
                return None
            answer = results.polled(submission)
            if answer is not None:
                return None if answer.empty else answer
            self._wait(self.poll_s, Busy(f"submission {number} still runs"), work, tell=False)

    def _patiently(self, ask: Callable[[], T], work: Work, lost: bool = True) -> T:
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

    def _wait(self, seconds: float, why: Busy | Lost, work: Work, tell: bool = True) -> None:
        """Raises `why` where there is no time left for it."""
        if time.monotonic() + seconds > work.deadline:
            raise why
        if tell:
            structlog.get_logger("ksflow.popcorn").warning("waiting for the service", seconds=seconds, why=str(why))
        time.sleep(seconds)
