"""Who may do what: claims on a run's trials, whose turn it is in a replay, and lock files that git leaves behind.

A claim ends with the process that holds it. Git makes `NAME.lock` beside a ref while it changes that ref, and
`packed-refs.new` while it packs refs. After a power loss or a `kill -9` they stay, and every later change of the ref is
refused. Git does not write down who made one, so the holder is looked for among this machine's processes; a lock that
nobody holds is removed. Holders on other machines that share the repository are not seen; their locks are respected for
`_UNSEEN_S` seconds.
"""

import fcntl
import logging
import os
import re
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ksflow.errors import BudgetError, LineageError, system_errors
from ksflow.records import digest

_LOG = logging.getLogger("ksflow.lineage")
_FILE = re.compile(r"nable to create (?:file )?'?(?P<file>[^'\n]+?(?:\.lock|packed-refs\.new))'?: File exists")
_UNSEEN_S = 3.0  # age from which a lock is removed when no git process on this machine works in the repository
_ANY_S = 60.0  # age from which a lock is removed though git processes are at work: no transaction takes that long
_LOOK_S = 0.05
_FLOCK = struct.Struct("hhqqi4x")  # the kernel's `struct flock`: type, whence, start, length, process
_READERS = (b"cat-file", b"for-each-ref", b"rev-list", b"repack", b"pack-objects", b"prune-packed")
"""Git commands that never lock a ref."""
_TURN_S = 300.0  # what processes do one after the other takes a moment
_STUCK_S = 60.0  # a recorded step that nothing produces for so long will not come
_DIVERGED_S = 3.0  # the same where something was made that is not on record
_WAIT_S = 0.5


def lock_in(message: str) -> Path | None:
    """The lock file that a message of git says is in the way; None when the message is about something else."""
    match = _FILE.search(message)
    return Path(os.path.normpath(match["file"])) if match else None


def clear_lock(lock: Path, repository: Path) -> None:
    """Return once the lock file is gone: released by its holder, or removed because its holder is dead.

    Raises LineageError, which names the file, when it cannot be removed.
    """
    left = f"{lock} was left behind by a git process that died, and cannot be removed"
    seen, since = _identity(lock), time.monotonic()
    while seen and (now := _identity(lock)) == seen:
        age = max(time.time() - now[1] / 1e9, time.monotonic() - since)
        if age >= _ANY_S or (age >= _UNSEEN_S and not _at_work(lock, repository, now[2])):
            with system_errors(lambda error: LineageError(f"{left} ({error.strerror}); remove it")):
                lock.unlink(missing_ok=True)
            _LOG.warning("removed %s: a git process that died %.0f s ago had left it behind", lock, age)
            return
        time.sleep(_LOOK_S)


def _identity(lock: Path) -> tuple[int, int, int] | None:
    """Inode, time of the last change (ns) and owner; None where there is no such file."""
    try:
        status = lock.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_uid


def _at_work(lock: Path, repository: Path, owner: int) -> bool:
    """Whether a process of a user has the lock open, or is one of git that may be changing refs of the repository."""
    return any(_works(process, os.path.realpath(lock), repository, owner) for process in Path("/proc").glob("[0-9]*"))


def _works(process: Path, lock: str, repository: Path, owner: int) -> bool:
    may_be_git = True
    try:
        if process.stat().st_uid != owner:
            return False
        may_be_git = (process / "comm").read_text(encoding="utf-8").startswith("git")
        if not may_be_git:
            return any(os.readlink(file) == lock for file in (process / "fd").iterdir())
        command = (process / "cmdline").read_bytes()
        if any(reader in command for reader in _READERS):
            return False
        context = command + (process / "environ").read_bytes()
        return Path(os.readlink(process / "cwd")).is_relative_to(repository.resolve()) or bytes(repository) in context
    except OSError as error:  # it has ended, or hides what it does
        return may_be_git and isinstance(error, PermissionError)


class Claims:
    """Claims on names that begin with `prefix`, as locks on single bytes of one file."""

    def __init__(self, file: BinaryIO, prefix: str) -> None:
        self._file, self._prefix = file, prefix
        self._held: set[str] = set()

    def acquire(self, name: str) -> bool:
        """Take the right to work on `name` until released or this process dies. False when another has it."""
        if name not in self._held and self._lock(name, fcntl.F_WRLCK):
            self._held.add(name)
        return name in self._held

    def share(self, name: str) -> None:
        """Hold a claim that other processes may hold, too, until it is released or this process dies."""
        if self._lock(name, fcntl.F_RDLCK):
            self._held.add(name)

    def release(self, name: str) -> None:
        """Give a claim back, where this process has it."""
        if name in self._held:
            self._held.remove(name)
            self._lock(name, fcntl.F_UNLCK)

    def release_all(self) -> None:
        """Give every claim of this process back."""
        for name in tuple(self._held):
            self.release(name)

    @contextmanager
    def turn(self, name: str, doing: str) -> Iterator[None]:
        """The claim on `name`, which is waited for: one process after the other. LineageError after `_TURN_S`."""
        until = time.monotonic() + _TURN_S
        while not self.acquire(name):
            if time.monotonic() > until:
                words = f"another process has been {doing} for {_TURN_S:g} s"
                raise LineageError(f"{words}: end it (fuser -v {self._file.name})")
            time.sleep(_LOOK_S)
        try:
            yield
        finally:
            self.release(name)

    def held_here(self, name: str) -> bool:
        """Whether this process has the claim."""
        return name in self._held

    def held_elsewhere(self, name: str) -> bool:
        """Whether another process has it. Nothing is locked or unlocked."""
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, self._request(name, fcntl.F_WRLCK)))
        return bool(kind != fcntl.F_UNLCK)

    def free_ids(self, count: int, used: Iterable[str]) -> list[str]:
        """The next ids above those in use that nobody is working on, claimed."""
        top, free = max((int(name) for name in used if name.isdecimal()), default=0), list[str]()
        while len(free) < count:
            top += 1
            name = f"{top:05d}"
            if not self.held_here(name) and self.acquire(name):
                free.append(name)
        return free

    def _lock(self, name: str, kind: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, self._request(name, kind))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _request(self, name: str, kind: int) -> bytes:
        """What the kernel is asked. The lock is the open file's: it ends with the process, however that ends."""
        if self._file.closed:
            raise LineageError(f"{self._file.name} was closed before this was written")
        return _FLOCK.pack(kind, os.SEEK_SET, int(digest(f"{self._prefix}{name}", digits=14), 16), 1, 0)


class Turns:
    """What a recorded session wrote, and in which order: whoever comes early in a replay waits for its turn.

    ids: the name of a round, or of a repaired trial -> the ids that were given. steps: what was written, in its order;
    None where kernels are judged anew, and everything comes as it comes. made_with: the session's arguments.
    """

    def __init__(
        self, ids: Mapping[str, tuple[str, ...]], rounds: int, steps: Sequence[str] | None, arguments: str
    ) -> None:
        self._ids, self.rounds, self.ordered, self._arguments = ids, rounds, steps is not None, arguments
        self._steps = tuple(steps or ())
        self._left: dict[str, deque[int]] = defaultdict(deque)
        for number, step in enumerate(self._steps):
            self._left[step].append(number)
        self._passed = 0
        self._diverged = False

    @property
    def missing_step(self) -> str:
        """The first recorded step that was not made again; empty when all were."""
        return self._steps[self._passed] if self._passed < len(self._steps) else ""

    @property
    def divergence(self) -> str:
        """What to tell a user when recorded steps are missing."""
        return (
            f"the replay came to step {self._passed} of {len(self._steps)}, before {self.missing_step!r}; it takes the "
            f"stages and settings that were recorded: that session was made with {self._arguments or 'no arguments'}"
        )

    def ids(self, cause: str) -> tuple[str, ...]:
        """The ids that a round or a repair took; none where there was none."""
        return self._ids.get(cause, ())

    def has_step(self, step: str) -> bool:
        """Whether the step is on record and its turn is yet to come."""
        return bool(self._left.get(step))

    @contextmanager
    def turn(self, step: str, changed: threading.Condition) -> Iterator[None]:
        """Wait for the step's turn; the next step's comes with the end. BudgetError where it is not on record.

        `changed` is held by the caller. LineageError where the turn does not come.
        """
        if self.ordered:
            if not self._left[step]:
                self._diverged = True
                raise BudgetError(f"the recording has no step {step!r}")
            self._wait(self._left[step].popleft(), changed)
        yield
        self._passed += 1
        changed.notify_all()

    def _wait(self, number: int, changed: threading.Condition) -> None:
        seen, since = self._passed, time.monotonic()
        while self._passed != number:
            changed.wait(_WAIT_S)
            if self._passed > seen:
                seen, since = self._passed, time.monotonic()
            elif time.monotonic() - since > (_DIVERGED_S if self._diverged else _STUCK_S):
                raise LineageError(self.divergence)
