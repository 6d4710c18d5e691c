"""Freezers: stop all threads of a sandbox's process from outside, and resume them.

A cgroup (v2) is used where there is one: nothing inside can undo its freezing. Elsewhere the process gets SIGSTOP and
SIGCONT, and a SIGCONT that the sandbox has arranged (by a timer) would resume it; so the caller must also check its CPU
clock. A stop by signals also wakes the process' parent each time.
"""

import contextlib
import os
import signal
from pathlib import Path

from ksflow.home import bytes_of

_LONGEST_STATE = 512
_RESTING = b"TtZX"  # states in /proc/PID/stat: stopped, traced, dead


class GroupFreezer:
    """Freezes by the cgroup of a folder. Raises OSError if that is gone."""

    def __init__(self, folder: Path) -> None:
        self._order = os.open(folder / "cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
        self._state = os.open(folder / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)

    def stop(self) -> None:
        """Request the freeze; `is_stopped` tells when it is complete."""
        os.pwrite(self._order, b"1", 0)

    def is_stopped(self) -> bool:
        """Return whether no thread runs any more, not even in a system call; also True once all have ended."""
        state = os.pread(self._state, _LONGEST_STATE, 0)
        return b"frozen 1" in state or b"populated 0" in state

    def resume(self) -> None:
        os.pwrite(self._order, b"0", 0)

    def close(self) -> None:
        os.close(self._order)
        os.close(self._state)


class SignalFreezer:
    """Freezes by signals to a process, with the methods of `GroupFreezer`. Raises OSError if the process is gone."""

    def __init__(self, pid: int) -> None:
        self._process = os.pidfd_open(pid)
        self._tasks = f"/proc/{pid}/task"
        self._state = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def stop(self) -> None:
        self._send(signal.SIGSTOP)

    def is_stopped(self) -> bool:
        with contextlib.suppress(OSError):
            state, threads = _state(os.pread(self._state, _LONGEST_STATE, 0))
            if state not in _RESTING:
                return False
            return threads == 1 or all(map(self._rests, os.listdir(self._tasks)))
        return True

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def close(self) -> None:
        os.close(self._process)
        os.close(self._state)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)

    def _rests(self, task: str) -> bool:
        text = bytes_of(Path(self._tasks, task, "stat"))
        return not text or _state(text)[0] in _RESTING


Freezer = GroupFreezer | SignalFreezer


def _state(text: bytes) -> tuple[bytes, int]:
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0], int(fields[17])
