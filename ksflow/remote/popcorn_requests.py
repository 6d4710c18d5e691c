"""Where submissions are noted before they are made: one at a time, not too often, and none made twice after a crash."""

import contextlib
import fcntl
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

from ksflow.home import write

_LOOK_S = 0.5


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
        told = False
        with (self.folder / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not told:
                        structlog.get_logger("ksflow.popcorn").warning("another process submits; waiting for its end")
                    told = True
                    time.sleep(_LOOK_S)
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
        key = hashlib.sha256("\0".join(about).encode()).hexdigest()[:24]
        try:
            found = json.loads(self._file(key).read_text())
            return Submission(key, str(found["name"]), found["id"] if type(found["id"]) is int else None, True)
        except (OSError, ValueError, KeyError, TypeError):
            return self.renew(Submission(key, ""))

    def renew(self, submission: Submission) -> Submission:
        """Another submission in its place, with a name of its own."""
        return self._kept(Submission(submission.key, f"kernel_{secrets.randbelow(10**12):012}.py"))

    def numbered(self, submission: Submission, number: int) -> Submission:
        """The same, with the service's number."""
        return self._kept(replace(submission, id=number))

    def done(self, submission: Submission) -> None:
        """Its end was seen."""
        self._file(submission.key).unlink(missing_ok=True)

    def _kept(self, submission: Submission) -> Submission:
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self._file(submission.key), json.dumps(asdict(submission)))
        return submission

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"
