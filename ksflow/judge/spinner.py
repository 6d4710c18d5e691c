"""Keeps the sandboxes' core awake while they are timed: a core that went to sleep takes its time to come back."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from ksflow.sandbox import linux

_LEAST_SHARE = "19"
"""How nice a scheduler's group can be at most."""


class IdleSpinner:
    """A process that never rests, at the scheduler's idle priority: it runs when nobody else wants the core.

    On a virtual machine it takes a third to a half off what a signal to a sleeping sandbox costs, and most of its
    spread. Make it before the first thread; it rests unless told to keep a core awake, and while an answer is long
    in coming: a tick of the scheduler may give it the core for some milliseconds.
    """

    def __init__(self) -> None:
        reader, self._core = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._core)
            _spin(reader)
        os.close(reader)
        self._spins = False

    def pin(self, core: int | None) -> None:
        """Say which core, once; None where there is none to spare."""
        if core is not None:
            os.write(self._core, str(core).encode())
            os.waitpid(self.pid, os.WUNTRACED)  # it stops once it is there; who goes on before would not wake it
        os.close(self._core)

    @contextlib.contextmanager
    def spinning(self) -> Iterator[None]:
        """Meanwhile the core stays awake."""
        self._tell(True)
        try:
            yield
        finally:
            self._tell(False)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Meanwhile it leaves the core alone, and then goes on where it was spinning."""
        spins = self._spins
        if spins:
            self._tell(False)
        try:
            yield
        finally:
            if spins:
                self._tell(True)

    def _tell(self, spins: bool) -> None:
        self._spins = spins
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT if spins else signal.SIGSTOP)


def _spin(reader: int) -> None:
    linux.die_with_parent()
    try:
        if core := os.read(reader, 16):
            os.sched_setaffinity(0, {int(core)})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            # Where sessions are scheduled as groups, an idle priority counts within the group alone, and a judge that
            # waits leaves its group's whole share, half of the core, to this: the least share for a group of its own.
            os.setsid()
            with contextlib.suppress(OSError):
                Path("/proc/self/autogroup").write_text(_LEAST_SHARE, encoding="ascii")
            os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                pass
    except OSError:
        pass
    finally:
        os._exit(0)
