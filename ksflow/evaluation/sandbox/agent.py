"""Confines a program that needs the network and its own settings, such as a coding agent.

`python -m ksflow.evaluation.sandbox.agent ORDER`, with ORDER as JSON: `command`; `folder`, the program's own;
`readable` paths; `ports` that it may connect to; `limit_s`; `held`, whether anything but the time limit applies. The
layers, as far as the machine has them: 1. Namespaces for users, processes, mounts and IPC, with a root directory that
has the program's paths only: no local
   sockets of other services, no other processes. The network is the machine's.
2. Landlock: the same paths, TCP to its ports only, no signals and no abstract sockets to the outside.
3. A system call filter: no kernel keys, no namespaces, no io_uring; without 1 no local sockets either.
4. cgroups, if they can be created: limits of memory (half the machine's) and processes. Limits of a file's size and of
   the folder's.

The time limit pauses between SIGUSR1 and SIGUSR2, while the program waits for its caller. Without namespaces the other
layers apply alone. The program and its descendants are killed together when it ends, at the time limit, when its folder
is too large, or when the caller ends or asks for it (SIGTERM). The exit status is the program's, or TIMED_OUT or
TOO_LARGE.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ksflow.evaluation.sandbox import cgroup, landlock, linux, root, seccomp

TIMED_OUT, TOO_LARGE = 124, 125
FOLDER_MB, FOLDER_FILES = 1024, 50_000  # limits of the program's folder, with open files that were removed
_LARGEST_FILE = 256 << 20
_TEMPORARY_MB = 512
_PROCESSES = 512
_DEEPEST = 3_000  # characters of a path
_LOOK_S, _MEASURE_S = 0.05, 0.25
_START_S, _END_S = 60.0, 20.0
_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | linux.NEW_USERS
"""Mounts, host name, IPC, processes, users."""
_USER = 1000  # user inside instead of root: some agents refuse to run as root
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OWN_WRITABLE = ("/tmp", "/dev/shm", "/dev/pts", "/dev/ptmx")  # writable with a root of its own
_USERS = ("/etc/passwd", "/etc/group", "/proc/self")  # readable files of the machine without a root of its own
_HOLDS_ABSTRACT = 6  # least version of Landlock that restricts abstract sockets


def main() -> NoReturn:
    """Start the program and watch it; never returns."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    os.environ.pop("PYTHONPATH", None)
    linux.die_with_parent(signal.SIGTERM)
    linux.adopt_orphans()
    os.setsid()  # without a controlling terminal
    group = None
    if order["held"] and (parents := cgroup.parents()):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        with contextlib.suppress(OSError):
            group = cgroup.Group(parents, memory, _PROCESSES)
    signal.signal(signal.SIGTERM, lambda *_: _end(TIMED_OUT, group))
    clock = _Clock(order["limit_s"])
    signal.signal(signal.SIGUSR1, lambda *_: clock.stop())
    signal.signal(signal.SIGUSR2, lambda *_: clock.go_on())
    child = _start(order, group)
    status, measured = None, 0.0
    while status is None:
        now = time.monotonic()
        if clock.over():
            _end(TIMED_OUT, group)
        if now > measured:
            if order["held"] and too_large(order["folder"], os.getpid()):
                _end(TOO_LARGE, group)
            measured = time.monotonic() + max(_MEASURE_S, 10 * (time.monotonic() - now))
        status = _reap(child)
        time.sleep(0 if status is not None else _LOOK_S)
    _end(1 if status in (TIMED_OUT, TOO_LARGE) else status, group)


class _Clock:
    """A time limit that can be paused."""

    def __init__(self, limit_s: float) -> None:
        self._until = time.monotonic() + limit_s
        self._stopped: float | None = None

    def stop(self) -> None:
        self._stopped = self._stopped or time.monotonic()

    def go_on(self) -> None:
        if self._stopped is not None:
            self._until += time.monotonic() - self._stopped
            self._stopped = None

    def over(self) -> bool:
        return self._stopped is None and time.monotonic() > self._until


def too_large(folder: str, keeper: int) -> bool:
    """Return whether the folder, with removed files that the programs hold open, exceeds its limits."""
    room, files = FOLDER_MB << 20, FOLDER_FILES
    try:
        for status in _files(folder, keeper):
            room, files = room - status.st_blocks * 512, files - 1
            if room < 0 or files < 0:
                return True
    except (PermissionError, OverflowError):  # it hides its contents
        return True
    return False


def _start(order: dict[str, Any], group: cgroup.Group | None) -> int:
    users = (os.getuid(), os.getgid())
    for namespaces in (_NAMESPACES, 0) if order["held"] else (0,):
        ours, theirs = socket.socketpair()
        ours.settimeout(_START_S)
        try:
            child = linux.clone(namespaces)
        except OSError:
            continue
        if child == 0:
            ours.close()
            _be_child(order, theirs, users if namespaces else None)
        theirs.close()
        with contextlib.suppress(TimeoutError):  # a file system to mount may not answer
            if ours.recv(1):
                if group:
                    group.add(child)
                ours.send(b"1")
                ours.close()
                return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _end(127)


def _be_child(order: dict[str, Any], keeper: socket.socket, users: tuple[int, int] | None) -> NoReturn:
    """Wait until the parent has limited this process, then run the program; with `users` in a root of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        linux.die_with_parent()
        if users:
            _own_root(order, *users)
        keeper.send(b"1")
        keeper.recv(1)
        keeper.close()
    except OSError as error:
        os.write(2, f"without a root of its own: {error}\n".encode())
        os._exit(1)
    if not users:
        _become(order, own_root=False)
    child = os.fork()
    if child == 0:
        _become(order, own_root=True)
    while (status := _reap(child, wait=True)) is None:
        pass
    os._exit(status)


def _own_root(order: dict[str, Any], user: int, group: int) -> None:
    inside = (user or _USER, group or _USER)
    maps = {"setgroups": "deny", "uid_map": f"{inside[0]} {user} 1", "gid_map": f"{inside[1]} {group} 1"}
    for name, text in maps.items():
        Path("/proc/self", name).write_text(text, encoding="utf-8")
    os.umask(0o022)
    top = "/proc"  # mounting here hides no path that is shown
    linux.mount("", "/", None, root.WITH_SUBMOUNTS | root.PRIVATE)
    linux.mount("agent", top, "tmpfs", root.NO_SUID, "size=4m,mode=755")
    root.mount_temporary(f"{top}/tmp", _TEMPORARY_MB)
    shown: list[str] = []
    for path in order["readable"]:
        _show(top, os.path.normpath(path), shown)
    root.show(top, order["folder"], read_only=False)
    root.devices(f"{top}/dev", ())
    os.mkdir(f"{top}/dev/pts")
    linux.mount("devpts", f"{top}/dev/pts", "devpts", root.NO_SUID, "newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", f"{top}/dev/ptmx")
    os.makedirs(f"{top}/etc", exist_ok=True)
    home = os.environ.get("HOME", "/")
    own = {"passwd": f"agent:x:{inside[0]}:{inside[1]}::{home}:/bin/sh", "group": f"agent:x:{inside[1]}:"}
    for name, text in own.items():
        Path(top, "etc", name).write_text(f"{text}\n", encoding="utf-8")
    os.mkdir(f"{top}/proc")
    linux.mount("proc", f"{top}/proc", "proc", root.NO_SUID | root.NO_DEVICES)
    linux.change_root(top)
    linux.mount("", "/", None, root.AGAIN | root.BIND | root.READ_ONLY | root.NO_SUID)
    os.chdir(order["folder"])


def _show(top: str, path: str, shown: list[str]) -> None:
    """Show a path inside; a link as a link, with its target."""
    if not os.path.exists(path) or path.startswith("/proc/") or any(root.is_within(path, other) for other in shown):
        return
    if os.path.islink(path):
        if not os.path.lexists(top + path):
            os.makedirs(os.path.dirname(top + path), exist_ok=True)
            os.symlink(os.readlink(path), top + path)
        _show(top, os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))), shown)
    else:
        root.show(top, path, read_only=True)
        shown.append(path)


def _become(order: dict[str, Any], own_root: bool) -> NoReturn:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if order["held"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
            linux.write_setting(linux.FIRST_TO_DIE, 1000)
            linux.no_new_privileges()
            linux.set_capabilities(0)
            readable = ["/"] if own_root else [*order["readable"], *_USERS]
            writable = [order["folder"], *_WRITABLE, *(_OWN_WRITABLE if own_root else ())]
            landlock.restrict(readable, writable, (), order["ports"])
            if seccomp.is_supported():
                seccomp.restrict_agent(local=own_root and landlock.version() >= _HOLDS_ABSTRACT)
        os.execvp(order["command"][0], order["command"])
    except OSError as error:
        os.write(2, f"cannot start {order['command'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _files(folder: str, keeper: int) -> Iterator[os.stat_result]:
    """Yield the status of each file in the folder, and of open files without a name on its file system.

    Raises PermissionError for a folder that cannot be read, OverflowError for one that is too deep.
    """
    folders = [folder]
    while folders:
        if len(folders[-1]) > _DEEPEST:
            raise OverflowError
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    device = os.stat(folder).st_dev
    for pid in linux.descendants(keeper, dead=False):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    if status.st_dev == device and not status.st_nlink and stat.S_ISREG(status.st_mode):
                        yield status


def _reap(child: int, wait: bool = False) -> int | None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, 0 if wait else os.WNOHANG))[0]:
            if ended[0] == child:
                return os.waitstatus_to_exitcode(ended[1]) & 0xFF
    return None


def _end(status: int, group: cgroup.Group | None = None) -> NoReturn:
    """Kill all descendants, orphans included, and exit."""
    linux.end_descendants(_END_S)
    if group:
        group.remove()
    os._exit(status)


if __name__ == "__main__":
    main()
