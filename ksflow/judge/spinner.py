"""Keeps the sandboxes' core awake while they are timed: a core that went to sleep takes its time to come back."""

import contextlib
import os
import signal
from collections.abc import Iterator

from ksflow.sandbox import linux


class IdleSpinner:
    """A process that never rests, at the scheduler's idle priority: it runs when nobody else wants the core.

    On a virtual machine it takes a third to a half off what a signal to a sleeping sandbox costs, and most of its
    spread. Make it before the first thread; it rests unless told to keep a core awake.
    """

    def __init__(self) -> None:
        reader, self._core = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._core)
            _spin(reader)
        os.close(reader)

    def pin(self, core: int | None) -> None:
        """Say which core, once; None where there is none to spare."""
        if core is not None:
            os.write(self._core, str(core).encode())
        os.close(self._core)

    @contextlib.contextmanager
    def spinning(self) -> Iterator[None]:
        """Meanwhile the core stays awake."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGSTOP)


def _spin(reader: int) -> None:
    linux.die_with_parent()
    try:
        if core := os.read(reader, 16):
            os.sched_setaffinity(0, {int(core)})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                pass
    except OSError:
        pass
    finally:
        os._exit(0)
