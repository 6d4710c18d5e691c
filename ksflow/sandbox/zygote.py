"""Forks sandboxes from a process that has already imported what they need; holds no secret and runs no candidate."""

import json
import os
import signal
import socket
from typing import NoReturn

from ksflow.sandbox import confine, linux
from ksflow.sandbox.supervisor import supervise

LARGEST_ORDER = 1 << 16
MOST_FDS = 8


def spawn() -> socket.socket:
    """Fork a zygote of this process as it is now. The judge's end of its control socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    _serve(theirs.detach())


def _serve(control: int) -> NoReturn:
    """Fork one supervisor per order, until the judge goes away."""
    linux.die_with_parent()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    kept = os.dup2(control, 3) if control != 3 else 3
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    confine.prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    judge = socket.socket(fileno=kept)
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
