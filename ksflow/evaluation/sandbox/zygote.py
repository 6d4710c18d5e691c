"""Forks sandboxes from a process with the imports that they need; holds no secret and runs no candidate.

It is a program of its own, not a fork of the judge: sandboxes share its address layout, which reveals nothing of the
judge's. `python -m ksflow.evaluation.sandbox.zygote FD MODULE...`: its control socket, and modules to import.
"""

import importlib
import json
import os
import signal
import socket
import sys
from typing import NoReturn

from ksflow.evaluation.processes.child_environment import THREADS
from ksflow.evaluation.sandbox import confine, linux
from ksflow.evaluation.sandbox.supervisor import supervise

LARGEST_ORDER = 1 << 16
MOST_FDS = 8
_READY = b"ready"
_STARTS_S, _FULL_S = 600.0, 60.0  # limits of a zygote's imports, and of a full socket


def spawn(*modules: str, threads: int = 1) -> socket.socket:
    """Start a zygote that imports these modules; return the judge's end of its control socket, for `wait`.

    threads: how many OpenMP and BLAS use in the sandboxes.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    linux.die_with_parent()
    null = os.open(os.devnull, os.O_RDWR)
    for pipe in (0, 1):  # the judge's
        os.dup2(null, pipe)
    theirs.set_inheritable(True)
    os.environ |= dict.fromkeys(THREADS, str(threads))
    os.execv(sys.executable, [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *modules])


def wait(zygote: socket.socket) -> None:
    """Wait until the zygote is ready, outside of any time limit. Raises RuntimeError if it ends instead."""
    zygote.settimeout(_STARTS_S)
    if not zygote.recv(len(_READY)):
        raise RuntimeError("the process that sandboxes are forked from has ended")
    zygote.settimeout(_FULL_S)


def _serve(control: int) -> NoReturn:
    linux.die_with_parent()
    linux.set_dumpable(False)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    channel = os.dup2(control, 3) if control != 3 else 3
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    confine.prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    judge = socket.socket(fileno=channel)
    judge.send(_READY)
    while True:
        order, fds, _, _ = socket.recv_fds(judge, LARGEST_ORDER, MOST_FDS)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            judge.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(json.loads(order), list(fds))
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    _serve(int(sys.argv[1]))
