"""One trusted process per box: starts its tree, tells the judge how it ended, leaves nothing behind.

Words to the judge: `layers JSON` (what was put on this box), `pid N K` (the candidate's process, the root of its
tree), `freezer FOLDER` (the control group in which the candidate's process can be frozen), `stopped N`, `disk`,
`memory`, `exit N`, `fault TEXT` (the box could not be made: not the candidate's doing), `gone`, and in answer to its
`lock`, `locked N` + what went wrong, if anything: the box has one process and starts no other from now on (1), or it
could still start one, as the kernel here does not ask (0).
"""

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import tempfile
import time
from typing import Any, NoReturn

from ksflow.sandbox import cgroup, init, kill_others, layers, levels, linux, seccomp
from ksflow.sandbox.confine import PREFIX, PROCESSES, own_uid, shared_bytes

_PATIENCE_S = 10.0
_LONGEST_WORD = 1024
_CREDENTIALS = struct.Struct("iII")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4)
_OWN_MEMORY_MB = 64
"""For the first process, and the kernel's own book-keeping."""
_LOOK_S = 0.25
_MOST_FILES = 16384


def supervise(order: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run one box until the judge hangs up. `fds`: judge, then what the candidate's process gets.

    An order that names no folder has the files for one: `files`, name -> text, and `copies`, name -> path of this
    machine's.
    """
    judge_fd, *rest = fds
    os.setsid()
    linux.adopt_orphans()
    judge = socket.socket(fileno=judge_fd)
    group, root = None, 0
    try:
        if "folder" not in order:
            order["folder"] = _folder(order["files"], order.get("copies", {}))
        group = _group(order)
        order = {"uid": own_uid(), **order, "grouped": group is not None}
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if (root := _fork(order["level"])) == 0:
            judge.close()
            status.close()
            init.run(order, theirs, rest)
        for fd in (theirs.detach(), *rest):
            os.close(fd)
        _release(order, root, group, status)
        judge.send(f"layers {json.dumps(layers.describe(order['level'], group is not None))}".encode())
        _Watch(order, judge, status, root, group).run()
    except OSError as error:
        with contextlib.suppress(OSError):
            judge.send(f"fault {error}"[:_LONGEST_WORD].encode())
    finally:
        _end(order, judge, group)


def _folder(files: dict[str, str], copies: dict[str, str]) -> str:
    folder = tempfile.mkdtemp(prefix=PREFIX)
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    for name, path in copies.items():
        shutil.copyfile(path, os.path.join(folder, name))
    return folder


def _group(order: dict[str, Any]) -> cgroup.Group | None:
    places = cgroup.places()
    if places is None:
        return None
    room = shared_bytes(order) + ((order["memory_mb"] + _OWN_MEMORY_MB) << 20)
    return cgroup.Group(places, room, order.get("processes", PROCESSES))


def _fork(level: str) -> int:
    if level not in levels.PRIVATE:
        return os.fork()
    linux.set_dumpable(True)  # or an ordinary user could not write the child's map of users
    return linux.clone(linux.NEW_NAMESPACES | (linux.NEW_USERS if level == "userns" else 0))


def _release(order: dict[str, Any], root: int, group: cgroup.Group | None, status: socket.socket) -> None:
    """The first process goes on once it is who it should be, and starts the candidate once it is where it should be."""
    if order["level"] == "userns":
        _map(root, order["uid"])
    linux.set_dumpable(False)
    status.send(b"mapped")
    if group is not None:
        group.add(root)
    status.send(b"grouped")


def _map(root: int, uid: int | None) -> None:
    """Who the users of the new namespace are outside: root may name two, anybody else only himself."""
    if uid is None:
        _write(root, "setgroups", "deny")
    for name, own in (("uid_map", os.getuid()), ("gid_map", os.getgid())):
        _write(root, name, f"{own} {own} 1" if uid is None else f"0 {own} 1\n{uid} {uid} 1")


def _write(pid: int, name: str, text: str) -> None:
    with open(f"/proc/{pid}/{name}", "w") as file:
        file.write(text)


class _Watch:
    """Passes on what the tree does; returns when the judge says so or is gone.

    What no layer limits, it looks at now and then: a folder without a file system of its own, memory without a group.
    """

    def __init__(
        self,
        order: dict[str, Any],
        judge: socket.socket,
        status: socket.socket,
        root: int,
        group: cgroup.Group | None,
    ) -> None:
        self.judge, self.status, self.root, self.group = judge, status, root, group
        self.room = (order["memory_mb"] + _OWN_MEMORY_MB) << 20
        self.folder = None if order["level"] in levels.PRIVATE else order["folder"]
        self.disk_mb = order.get("disk_mb", init.DISK_MB)
        self.ended = False
        self.listener = -1
        self.locked = False
        self.candidate = 0
        self.frozen_by_group = False

    def run(self) -> None:
        poller = self.poller = select.poll()
        for source in (self.judge, self.status):
            poller.register(source, select.POLLIN)
        pause = _LOOK_S * 1000 if self.group is None or self.folder else None
        while True:
            ready = {fd for fd, _ in poller.poll(pause)}
            if self.listener in ready:
                self._asked()
            if self.judge.fileno() in ready and not self._told():
                return
            if self.status.fileno() in ready and not self._hear():
                poller.unregister(self.status)
            if pause and (cause := self._excess()):
                pause = None
                self.judge.send(cause)
                _kill_descendants()

    def _told(self) -> bool:
        """Do what the judge says; false when that is to end."""
        if self.judge.recv(_LONGEST_WORD) != b"lock":
            return False
        self.locked = True
        if not self.frozen_by_group:
            with contextlib.suppress(OSError):  # the first process may have ended
                self.status.send(b"lock")
        fault = kill_others.kill_other_processes(self.root, self.candidate)
        self.judge.send(f"locked {int(self.listener >= 0)} {fault}".encode())
        return True

    def _asked(self) -> None:
        """Somebody in the box wants to start a process."""
        if not select.select([self.listener], [], [], 0)[0]:  # nobody is left who could ask
            self.poller.unregister(self.listener)
            return
        seccomp.answer(self.listener, allowed=not self.locked)

    def _excess(self) -> bytes:
        """What the tree has too much of."""
        if self.folder and _overfull(self.folder, self.disk_mb << 20):
            return b"disk"
        if self.group is None and _memory(linux.descendants(self.root)) > self.room:
            return b"memory"
        return b""

    def _hear(self) -> bool:
        """Pass one word on; false when there will be no more."""
        data, ancillary, _, _ = self.status.recvmsg(_LONGEST_WORD, _ANCILLARY)
        word, _, text = data.decode("utf-8", "replace").partition(" ")
        match word:
            case "fault":
                raise OSError(text)
            case "here":
                pid, _, _ = _CREDENTIALS.unpack(_sent(ancillary, socket.SCM_CREDENTIALS)[: _CREDENTIALS.size])
                self.candidate = pid
                self.judge.send(f"pid {pid} {self.root}".encode())
                self._hold(pid)
            case "ask":
                (self.listener,) = struct.unpack("=i", _sent(ancillary, socket.SCM_RIGHTS)[:4])
                self.poller.register(self.listener, select.POLLIN)
            case "exit":
                self._exit(text)
            case "stopped" if self.locked and kill_others.running(self.candidate):
                pass  # that was when it was left alone
            case "":
                if not self.ended:
                    self._exit(str(os.waitstatus_to_exitcode(os.waitpid(self.root, 0)[1])))
            case _:
                self.judge.send(data)
        return bool(word)

    def _hold(self, pid: int) -> None:
        """Put the candidate where it can be frozen, and say where that is."""
        folder = self.group.hold(pid) if self.group is not None else None
        self.frozen_by_group = folder is not None
        if folder is not None:
            self.judge.send(f"freezer {folder}".encode())

    def _exit(self, status: str) -> None:
        self.ended = True
        if self.group is not None and self.group.out_of_memory():
            self.judge.send(b"memory")
        self.judge.send(f"exit {status}".encode())


def _sent(ancillary: list[tuple[int, int, bytes]], kind: int) -> bytes:
    """What came beside a word."""
    return next(data for level, found, data in ancillary if (level, found) == (socket.SOL_SOCKET, kind))


def _memory(pids: list[int]) -> int:
    """What the processes have in memory for themselves, in bytes."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/statm") as file:
            fields = file.read().split()
            pages += int(fields[1]) - int(fields[2])
    return pages * resource.getpagesize()


def _overfull(folder: str, room: int) -> bool:
    files = _MOST_FILES
    for path, _, names in os.walk(folder):
        for name in names:
            files -= 1
            with contextlib.suppress(OSError):
                room -= os.lstat(os.path.join(path, name)).st_blocks * 512
            if room < 0 or files < 0:
                return True
    return False


def _end(order: dict[str, Any], judge: socket.socket, group: cgroup.Group | None) -> NoReturn:
    _kill_all(None if order["level"] in levels.PRIVATE else order.get("uid"))
    if group is not None:
        group.remove()
    shutil.rmtree(order.get("folder", ""), ignore_errors=True)
    with contextlib.suppress(OSError):
        judge.send(b"gone")
    os._exit(0)


def _kill_all(uid: int | None) -> None:
    if uid is not None:
        _kill_user(uid)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        _kill_descendants()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.0005)


def _kill_descendants() -> None:
    """Nearest first: with the first process of its namespace everything in it goes."""
    for pid in linux.descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_user(uid: int) -> None:
    """Kill a throw-away user's processes in one system call, which no race of forks can outrun."""
    helper = os.fork()
    if helper == 0:
        os.setresuid(uid, uid, uid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(helper, 0)
