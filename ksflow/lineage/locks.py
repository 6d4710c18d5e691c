"""Lock files that git leaves in a repository when it is killed: waited for, removed once nobody holds them, or named.

Git makes `NAME.lock` beside a ref while it changes that ref, and `packed-refs.new` while it packs refs. After a power
loss or a `kill -9` they stay, and every later change of the ref is refused. Git does not write down who made one, so
the holder is looked for among this machine's processes. Not covered: holders on other machines that share the
repository are not seen; their locks are respected for `_UNSEEN_S` seconds.
"""

import logging
import os
import re
import time
from pathlib import Path

from ksflow.errors import LineageError

_LOG = logging.getLogger("ksflow.lineage")
_FILE = re.compile(r"nable to create (?:file )?'?(?P<file>[^'\n]+?(?:\.lock|packed-refs\.new))'?: File exists")
_UNSEEN_S = 3.0
"""Age from which a lock is removed when no git process on this machine works in the repository."""
_ANY_S = 60.0
"""Age from which a lock is removed though git processes are at work: no transaction takes that long."""
_LOOK_S = 0.05
_READERS = (b"cat-file", b"for-each-ref", b"rev-list", b"repack", b"pack-objects", b"prune-packed")
"""Git commands that never lock a ref."""


def lock_in(message: str) -> Path | None:
    """The lock file that a message of git says is in the way; None when the message is about something else."""
    found = _FILE.search(message)
    return Path(os.path.normpath(found["file"])) if found else None


def clear_lock(lock: Path, repository: Path) -> None:
    """Return once the lock file is gone: released by its holder, or removed because its holder is dead.

    Raises LineageError, which names the file, when it cannot be removed.
    """
    seen, since = _identity(lock), time.monotonic()
    while seen and (now := _identity(lock)) == seen:
        age = max(time.time() - now[1] / 1e9, time.monotonic() - since)
        if age >= _ANY_S or (age >= _UNSEEN_S and not _workers(repository, now[2])):
            _remove(lock, age)
            return
        time.sleep(_LOOK_S)


def _remove(lock: Path, age: float) -> None:
    try:
        lock.unlink(missing_ok=True)
    except OSError as error:
        raise LineageError(
            f"{lock} was left behind by a git process that died, and cannot be removed ({error.strerror}); remove it"
        ) from error
    _LOG.warning("removed %s: a git process that died %.0f s ago had left it behind", lock, age)


def _identity(lock: Path) -> tuple[int, int, int] | None:
    """Inode, time of the last change (ns) and owner; None where there is no such file."""
    try:
        found = lock.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_uid


def _workers(repository: Path, owner: int) -> list[int]:
    """The git processes of a user that may be changing refs of the repository."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _works(process, repository, owner)]


def _works(process: Path, repository: Path, owner: int) -> bool:
    try:
        if not (process / "comm").read_text(encoding="utf-8").startswith("git") or process.stat().st_uid != owner:
            return False
        command = (process / "cmdline").read_bytes()
        if any(reader in command for reader in _READERS):
            return False
        told = command + (process / "environ").read_bytes()
        return Path(os.readlink(process / "cwd")).is_relative_to(repository.resolve()) or bytes(repository) in told
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False
