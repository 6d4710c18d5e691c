"""Leaves a sandbox one process: kills all others, those too that are only being started.

A process that is being copied is in no list until the copy is done, and that takes as long as the parent's memory is
large. So the one that may stay is stopped first: a thread stops when it is back from the kernel, and not before. Once
all of its threads have stopped and every other process is dead, there is none on its way. Whoever calls this has seen
to it that none is started from now on.
"""

import contextlib
import os
import signal
import time

from ksflow.sandbox import linux
from ksflow.sandbox.confine import PROCESSES

KEEPS_STARTING = "keeps starting processes"
_PATIENCE_S = 20.0
"""So long may large processes take to die, and one that is being copied to be ready."""
_LOOK_S = 0.0005
_NOT_RUNNING = ("", "t", "T", "Z", "X")
"""Letters in /proc/PID/stat: stopped, dead, or no such process."""


def kill_other_processes(root: int, candidate: int) -> str:
    """Have no process below `root` but `candidate`. What went wrong, in words; nothing where all is well.

    A process that takes long to die is waited for. More new ones than can have been on their way are a trick.
    """
    end = time.monotonic() + _PATIENCE_S
    killed: set[int] = set()
    try:
        while time.monotonic() < end:
            _signal(candidate, signal.SIGSTOP)
            still = _stopped(candidate)
            others = set(linux.descendants(root, dead=False)) - {candidate}
            if still and not others:
                return ""
            killed |= others
            if len(killed) > 2 * PROCESSES:
                return KEEPS_STARTING
            for pid in others:
                _signal(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        return "has processes that do not end"
    finally:
        _signal(candidate, signal.SIGCONT)


def running(pid: int) -> bool:
    """Whether a process is there and not stopped."""
    return _state(f"/proc/{pid}/stat") not in _NOT_RUNNING


def _stopped(pid: int) -> bool:
    """Whether no thread of a process runs; true where there is no such process any more."""
    folder = f"/proc/{pid}/task"
    before = _names(folder)
    states = [_state(f"{folder}/{name}/stat") for name in before]
    return all(state in _NOT_RUNNING for state in states) and _names(folder) == before


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _state(file: str) -> str:
    """One letter; none where there is no such thread."""
    with contextlib.suppress(OSError), open(file, "rb") as text:
        return chr(text.read().rpartition(b")")[2].split()[0][0])
    return ""


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
