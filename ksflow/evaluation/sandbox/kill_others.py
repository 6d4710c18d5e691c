"""Leaves a sandbox one process: kills all others, including those that are being forked.

A process that is being forked is in no list until the copy is done, which takes as long as the parent's memory is
large. So the remaining process is stopped first: a thread stops when it returns from the kernel, and not before. Once
all of its threads have stopped and every other process is dead, no fork is under way. The caller prevents new ones.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from ksflow.evaluation.sandbox import linux
from ksflow.evaluation.sandbox.confine import PROCESSES
from ksflow.home import text_of

KEEPS_STARTING = "keeps starting processes"
_PATIENCE_S = 20.0  # time for large processes to die, and for a fork to complete
_LOOK_S = 0.0005
_NOT_RUNNING = ("", "t", "T", "Z", "X")  # states in /proc/PID/stat: no such process, stopped, dead


def kill_other_processes(root: int, candidate: int) -> str:
    """Kill every process below `root` but `candidate`. Returns the fault in words, "" if none.

    Waits for processes that take long to die. More new processes than can have been under way are an attempt to cheat.
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


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not stopped."""
    return _state(Path("/proc", str(pid))) not in _NOT_RUNNING


def _stopped(pid: int) -> bool:
    """Return whether no thread of a process runs; True if the process is gone."""
    before = linux.tasks(pid)
    return all(_state(task) in _NOT_RUNNING for task in before) and linux.tasks(pid) == before


def _state(folder: Path) -> str:
    return text_of(folder / "stat").rpartition(")")[2].strip()[:1]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
