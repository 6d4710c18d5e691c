"""One trusted process per box: starts the candidate's process, tells the judge how it ended, leaves nothing behind.

Orphans of the candidate become the keeper's children, so killing until there are none left kills them all.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import time
from typing import Any, NoReturn

from ksflow.stages.evaluator.box import native, shim
from ksflow.stages.evaluator.box.confine import own_uid

_PATIENCE_S = 10.0


def keep(order: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run one box until the judge hangs up. `fds`: judge, then what the shim gets."""
    judge_fd, *rest = fds
    os.setsid()
    native.adopt_orphans()
    box = os.fork()
    if box == 0:
        os.close(judge_fd)
        os.setsid()
        shim.run(order, rest)
    for fd in rest:
        os.close(fd)
    with socket.socket(fileno=judge_fd) as judge:
        with contextlib.suppress(OSError):
            judge.send(f"pid {box}".encode())
            _watch(judge, box)
        _kill_all(own_uid(box))
        shutil.rmtree(order["folder"], ignore_errors=True)
        with contextlib.suppress(OSError):
            judge.send(b"gone")
    os._exit(0)


def _watch(judge: socket.socket, box: int) -> None:
    """Report the box's end; return when the judge says so or is gone."""
    poller = select.poll()
    ended = os.pidfd_open(box)
    poller.register(judge, select.POLLIN)
    poller.register(ended, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if judge.fileno() in ready:
            return
        if ended in ready:
            poller.unregister(ended)
            _, status = os.waitpid(box, 0)
            judge.send(f"exit {os.waitstatus_to_exitcode(status)}".encode())


def _kill_all(uid: int | None) -> None:
    if uid is not None:
        _kill_user(uid)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for pid in native.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.0005)


def _kill_user(uid: int) -> None:
    """Kill a throw-away user's processes in one system call, which no race of forks can outrun."""
    helper = os.fork()
    if helper == 0:
        os.setresuid(uid, uid, uid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(helper, 0)
