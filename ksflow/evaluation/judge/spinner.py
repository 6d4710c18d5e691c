"""Keeps the sandboxes' cores awake during timing: a sleeping core takes time to wake up."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from ksflow.evaluation.sandbox import linux

_LONGEST = 1 << 14
_LEAST_SHARE = "19"  # the highest nice value of a scheduler's group


class IdleSpinner:
    """A busy loop in a process of idle priority, for each core: it runs only when nothing else wants the core.

    On a virtual machine it saves a third to a half of the cost of a signal to a sleeping sandbox, and most of its
    spread. Create it before the first thread. It rests unless told to spin, and while a late answer is awaited: a tick
    of the scheduler may give it the core for some milliseconds.
    """

    def __init__(self) -> None:
        reader, self._core = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._core)
            _spin(reader)
        os.close(reader)
        self._spins = False

    def pin(self, cores: tuple[int, ...]) -> None:
        """Set the cores, once; none if there is none to spare."""
        if cores:
            os.write(self._core, " ".join(map(str, cores)).encode())
            os.waitpid(self.pid, os.WUNTRACED)  # it stops itself once it is pinned; an earlier SIGCONT would be lost
        os.close(self._core)

    @contextlib.contextmanager
    def keep_awake(self, spins: bool = True) -> Iterator[None]:
        """Keep the core awake during the block, or let it idle."""
        before = self._spins
        self._tell(spins)
        try:
            yield
        finally:
            self._tell(before)

    def _tell(self, spins: bool) -> None:
        if spins != self._spins:
            self._spins = spins
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGCONT if spins else signal.SIGSTOP)


def _spin(reader: int) -> None:
    linux.die_with_parent()
    try:
        if cores := [*map(int, os.read(reader, _LONGEST).split())]:
            # Where sessions are scheduled as groups, idle priority counts only within the group, and while the judge
            # waits this process would get the group's whole share, half of the core: so it gets a group of its own with
            # the least share.
            os.setsid()
            linux.write_setting(Path("/proc/self/autogroup"), _LEAST_SHARE)
            core, *others = cores
            for other in others:
                if (pid := os.fork()) == 0:
                    linux.die_with_parent()
                    core = other
                    break
                os.waitpid(pid, os.WUNTRACED)
            os.sched_setaffinity(0, {core})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                pass
    finally:
        os._exit(0)
