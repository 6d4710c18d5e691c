"""Waits with a deadline: a process that takes too long is killed, a file's lock is given up.

A read from a pipe needs no deadline of its own if the process at the other end has one: once that is killed, the read
ends. Standard library only.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

END_S = 5.0  # seconds that a process has to end when asked, and that the system has to end a killed one
_LOOK_S = 0.2
_LOCK_LOOK_S = 0.02
_changed = threading.Condition()
_watched: set["Watch"] = set()
_watcher: threading.Thread | None = None


@dataclass(eq=False)
class Watch:
    """A process that is killed at its deadline, with its process group if it leads one."""

    process: "subprocess.Popen[bytes]"
    seconds: float
    until: float
    expired: bool = False  # whether the deadline killed it


@contextlib.contextmanager
def killed_after(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[Watch]:
    """Kill the process if the block takes longer than `seconds`."""
    global _watcher
    watch = Watch(process, seconds, time.monotonic() + seconds)
    with _changed:
        _watched.add(watch)
        _changed.notify_all()
        if _watcher is None or not _watcher.is_alive():
            _watcher = threading.Thread(target=_look, daemon=True)
            _watcher.start()
    try:
        yield watch
    finally:
        with _changed:
            _watched.discard(watch)


def end_process(process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Close a process' pipes, which asks ours to end, and wait; kill it after `patience_s`."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    for wait_s in (patience_s, END_S):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return
        process.kill()


def locked_within(file: int, seconds: float) -> bool:
    """Lock a file for this process alone; return False if another process held the lock all the time."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_LOCK_LOOK_S)


def _look() -> None:
    """Kill processes at their deadlines; sleep while none is watched."""
    while True:
        time.sleep(_LOOK_S)
        with _changed:
            _changed.wait_for(lambda: _watched)
            for watch in _watched:
                if not watch.expired and time.monotonic() > watch.until:
                    watch.expired = True
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        if watch.process.poll() is None and os.getpgid(watch.process.pid) == watch.process.pid:
                            os.killpg(watch.process.pid, signal.SIGKILL)
                    watch.process.kill()
