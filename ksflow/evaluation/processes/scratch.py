"""Folders below TMPDIR that live as long as a process. Other processes remove abandoned ones.

A folder's owner holds a lock on it, which the system releases however the process ends. So the folder of a killed
process is removed, and that of a live one is not. Standard library only.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "ksflow-foreign-"
_held: dict[Path, int] = {}


def make_folder() -> Path:
    """Return a new folder of this process, removed at its end, or by `remove_abandoned` later."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else another process is removing it
            if folder.exists():  # else it was removed before it was locked
                if not _held:
                    atexit.register(remove_folders)
                _held[folder] = lock
                return folder
            os.close(lock)


def remove_folders() -> None:
    """Remove this process' folders now."""
    for folder in list(_held):
        shutil.rmtree(folder, ignore_errors=True)
        os.close(_held.pop(folder))


def remove_abandoned() -> None:
    """Remove this user's folders whose processes are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
