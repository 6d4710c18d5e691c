"""Holds a program that needs the network and its own settings, such as a coding agent.

`python -m ksflow.sandbox.agent ORDER`, an order as JSON: `command`, `readable` and `writable` paths, `limit_s`. The
program and all that it starts see these paths and no other file (Landlock), cannot send signals to or look into
processes outside, and are killed together when the program ends, at the time limit, or when whoever gave the order ends
or asks for it (SIGTERM). The exit status is the program's; 124 at the time limit. What it does not do: keep the program
off the network.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

from ksflow.sandbox import landlock, linux

_LARGEST_FILE = 256 << 20
_LOOK_S = 0.05
TIMED_OUT = 124


def main() -> NoReturn:
    """Be the program's keeper; never returns."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    linux.die_with_parent()
    linux.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: _end(TIMED_OUT))
    until = time.monotonic() + order["limit_s"]
    child = os.fork()
    if child == 0:
        _become(order)
    status = None
    while status is None and time.monotonic() < until:
        status = _reap(child)
        time.sleep(0 if status is not None else _LOOK_S)
    _end(TIMED_OUT if status is None else status)


def _become(order: dict[str, Any]) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        linux.no_new_privileges()
        landlock.restrict(order["readable"], order["writable"], (), network=True)
        os.execvp(order["command"][0], order["command"])
    except OSError as error:
        os.write(2, f"cannot start {order['command'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reap(child: int) -> int | None:
    """Take in what has ended; the child's exit status once it has."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return os.waitstatus_to_exitcode(ended[1]) & 0xFF
    return None


def _end(status: int) -> NoReturn:
    """Kill whatever is left, orphans too, until there is nobody."""
    while found := linux.descendants(os.getpid(), dead=False):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os._exit(status)


if __name__ == "__main__":
    main()
