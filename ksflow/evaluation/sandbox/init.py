"""The first process of a sandbox: trusted, the root of its tree, in the sandbox's namespaces if it has any.

It waits for the supervisor to map its users (`mapped`) and to limit it (`grouped`), builds the root directory, forks
the candidate's process and reaps. Messages to the supervisor: `here` (from the candidate's process, before it is
confined), `ask` (with the listener's descriptor), `exit N`, `stopped N`, `disk`, `fault` + text. After the supervisor's
`lock`, a stopped candidate is not reported any more: without a cgroup the judge itself stops it between its turns by
signals.
"""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
from typing import Any, NoReturn

from ksflow.evaluation.processes import core_pinning
from ksflow.evaluation.sandbox import levels, linux, root
from ksflow.evaluation.sandbox.confine import confine
from ksflow.evaluation.sandbox.runners import cpu, device

_NO_FILE = 120  # exit status of a tool that succeeded without making its file


def run(order: dict[str, Any], supervisor: socket.socket, fds: list[int]) -> NoReturn:
    """Run the sandbox's first process; never returns."""
    linux.die_with_parent()
    linux.adopt_orphans()
    # leave the candidate's cores: this process wakes up whenever the candidate is stopped
    if others := os.sched_getaffinity(0) - {*order["cores"]}:
        core_pinning.pin(others)
    try:
        candidate = _start(order, supervisor, fds)
    except OSError as error:
        supervisor.send(f"fault {error}"[:500].encode())
        os._exit(1)
    for fd in fds:
        os.close(fd)
    _reap(candidate, supervisor, watch_disk=order["level"] in levels.PRIVATE)


def _start(order: dict[str, Any], supervisor: socket.socket, fds: list[int]) -> int:
    _wait(supervisor)
    linux.set_dumpable(False)
    if order["level"] in levels.PRIVATE:
        if order["level"] == "userns" and order["uid"] is not None:
            os.setgroups([])
        if order.get("profiler"):
            linux.bring_up_loopback()
        os.umask(0o022)
        root.build(order, os.getuid() if order["uid"] is None else order["uid"])
        order = {**order, "folder": root.INSIDE}
    _wait(supervisor)
    candidate = os.fork()
    if candidate == 0:
        _be_candidate(order, supervisor, fds)
    return candidate


def _wait(supervisor: socket.socket) -> None:
    """Wait for the supervisor's message; exit if the supervisor is gone."""
    if not supervisor.recv(16):
        os._exit(1)


def _be_candidate(order: dict[str, Any], supervisor: socket.socket, fds: list[int]) -> NoReturn:
    language = order["language"]
    try:
        os.setsid()
        supervisor.send(b"here")
        listener = confine(order, fds[order["artefact"] :] if order.get("artefact") else [])
        if listener is not None:
            socket.send_fds(supervisor, [b"ask"], [listener])
            os.close(listener)
        if language not in ("tool", "nothing"):
            cpu.prepare(order)
    except BaseException as error:  # noqa: BLE001 - a layer that fails, or a fault of ours: no sandbox
        supervisor.send(f"fault {error}"[:500].encode())
        os._exit(1)
    supervisor.close()
    if language == "nothing":
        os._exit(0)
    if language == "tool":
        _run_program(order, fds)
    (device if order.get("device") else cpu).run(order, fds)
    raise AssertionError("a sandbox never returns")


def _run_program(order: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run a compiler or another tool, and exit. `fds`: its log, and a descriptor for the file that it makes."""
    log, result = fds
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        environment = {**os.environ, **order["environment"], "LC_ALL": "C"}  # HOME and TMPDIR are the sandbox's
        done = subprocess.run(
            order["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, check=False
        )
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        if status == 0 and order["makes"]:
            status = _NO_FILE
            if _hand_out(order["makes"], result, order["file_mb"] << 20):
                status = 0
    except OSError as error:
        os.write(log, f"{error}\n".encode())
    finally:
        os._exit(status)


def _hand_out(name: str, result: int, largest: int) -> bool:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        return False
    with open(fd, "rb") as source, open(result, "wb", closefd=False) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return True


def _reap(candidate: int, supervisor: socket.socket, watch_disk: bool) -> NoReturn:
    options = os.WUNTRACED
    while True:
        try:
            pid, status = os.waitpid(-1, options)
        except ChildProcessError:
            signal.pause()
            continue
        if pid != candidate:
            continue
        if os.WIFSTOPPED(status):
            with contextlib.suppress(BlockingIOError, ConnectionError):
                if supervisor.recv(16, socket.MSG_DONTWAIT):  # `lock`
                    options = 0
            if options:
                supervisor.send(f"stopped {os.WSTOPSIG(status)}".encode())
            continue
        if watch_disk and root.is_full():
            supervisor.send(b"disk")
        supervisor.send(f"exit {os.waitstatus_to_exitcode(status)}".encode())
