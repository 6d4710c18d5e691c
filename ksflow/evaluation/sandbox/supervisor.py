"""The trusted process of one sandbox: starts its process tree, reports its end to the judge, removes its remains.

Messages to the judge: `layers JSON` (the layers of this sandbox), `pid N K` (the candidate's process, the root of its
tree), `freezer FOLDER` (the cgroup in which the candidate's process can be frozen), `stopped N`, `disk`, `memory`,
`exit N`, `fault TEXT` (the sandbox could not be made, which is not the candidate's fault), `gone`. The answer to the
judge's `lock` is `locked N` + a fault, if any: the sandbox has one process and can start no other from now on (1), or
could still start one, because this kernel cannot intercept it (0).
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
from pathlib import Path
from typing import Any, NoReturn

from ksflow.evaluation.sandbox import cgroup, init, kill_others, levels, linux, seccomp
from ksflow.evaluation.sandbox.confine import PREFIX, PROCESSES, describe_layers, own_uid, shared_bytes
from ksflow.evaluation.sandbox.root import DISK_MB
from ksflow.home import text_of

_PATIENCE_S = 10.0
_LONGEST_WORD = 1024
_CREDENTIALS = struct.Struct("iII")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4)
_OWN_MEMORY_MB = 64  # for the first process, and the kernel's own book-keeping
_LOOK_S = 0.25
_MOST_FILES = 16384


def supervise(order: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run one sandbox until the judge hangs up. `fds`: judge, then those of the candidate's process.

    An order without a folder has the files for one: `files`, name -> text, and `copies`, name -> path on this machine.
    """
    judge_fd, *rest = fds
    os.setsid()
    linux.adopt_orphans()
    judge = socket.socket(fileno=judge_fd)
    group = None
    try:
        if "folder" not in order:
            order["folder"] = tempfile.mkdtemp(prefix=PREFIX)
            for name, text in order["files"].items():
                Path(order["folder"], name).write_text(text, encoding="utf-8")
            for name, path in order.get("copies", {}).items():
                shutil.copyfile(path, os.path.join(order["folder"], name))
        if parents := cgroup.parents():
            memory = shared_bytes(order) + ((order["memory_mb"] + _OWN_MEMORY_MB) << 20)
            group = cgroup.Group(parents, memory, order.get("processes", PROCESSES))
        order = {"uid": own_uid(), **order, "grouped": group is not None}
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if order["level"] in levels.PRIVATE:
            linux.set_dumpable(True)  # else an ordinary user could not write the child's user map
            root = linux.clone(linux.NEW_NAMESPACES | (linux.NEW_USERS if order["level"] == "userns" else 0))
        else:
            root = os.fork()
        if root == 0:
            judge.close()
            status.close()
            init.run(order, theirs, rest)
        for fd in (theirs.detach(), *rest):
            os.close(fd)
        _release(order, root, group, status)
        judge.send(f"layers {json.dumps(describe_layers(order['level'], group is not None))}".encode())
        _Supervisor(order, judge, status, root, group).run()
    except OSError as error:
        with contextlib.suppress(OSError):
            judge.send(f"fault {error}"[:_LONGEST_WORD].encode())
    finally:
        _end(order, judge, group)


def _release(order: dict[str, Any], root: int, group: cgroup.Group | None, status: socket.socket) -> None:
    """Let the first process continue once its users are mapped, and start the candidate once it is in its cgroup."""
    if order["level"] == "userns":  # root may map two users, anybody else only itself
        uid = order["uid"]
        texts = {} if uid is not None else {"setgroups": "deny"}
        for name, own in (("uid_map", os.getuid()), ("gid_map", os.getgid())):
            texts[name] = f"{own} {own} 1" if uid is None else f"0 {own} 1\n{uid} {uid} 1"
        for name, text in texts.items():
            Path("/proc", str(root), name).write_text(text, encoding="utf-8")
    linux.set_dumpable(False)
    status.send(b"mapped")
    if group is not None:
        group.add(root)
    status.send(b"grouped")


class _Supervisor:
    """Passes on the tree's messages; `run` returns when the judge asks for it or is gone.

    It polls what no layer limits: a folder without a file system of its own, memory without a cgroup.
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
        self.most_memory = (order["memory_mb"] + _OWN_MEMORY_MB) << 20
        self.folder = None if order["level"] in levels.PRIVATE else order["folder"]
        self.most_disk = order.get("disk_mb", DISK_MB) << 20
        self.poller = select.poll()
        self.ended = self.locked = self.frozen_by_group = False
        self.listener = -1
        self.candidate = 0

    def run(self) -> None:
        for source in (self.judge, self.status):
            self.poller.register(source, select.POLLIN)
        pause = _LOOK_S * 1000 if self.group is None or self.folder else None
        while True:
            ready = dict(self.poller.poll(pause))
            if ready.get(self.listener, 0) & select.POLLIN:
                seccomp.answer(self.listener, allowed=not self.locked)
            elif self.listener in ready:  # no process can ask any more
                self.poller.unregister(self.listener)
            if self.status.fileno() in ready and not self._pass_on():
                self.poller.unregister(self.status)
            if self.judge.fileno() in ready and not self._obey():  # last: it may read what is ready of the status
                return
            if pause and (cause := self._excess()):
                pause = None
                self.judge.send(cause)
                linux.kill_descendants()

    def _obey(self) -> bool:
        if self.judge.recv(_LONGEST_WORD) != b"lock":
            return False
        while select.select([self.status], [], [], 0)[0] and self._pass_on():
            pass  # messages sent before the process was ready, among them the listener's descriptor
        self.locked = True
        if not self.frozen_by_group:
            with contextlib.suppress(OSError):  # the first process may have ended
                self.status.send(b"lock")
        fault = kill_others.kill_other_processes(self.root, self.candidate)
        self.judge.send(f"locked {int(self.listener >= 0)} {fault}".encode())
        return True

    def _excess(self) -> bytes:
        if self.folder and _overfull(self.folder, self.most_disk):
            return b"disk"
        if self.group is None and _memory(linux.descendants(self.root)) > self.most_memory:
            return b"memory"
        return b""

    def _pass_on(self) -> bool:
        data, ancillary, _, _ = self.status.recvmsg(_LONGEST_WORD, _ANCILLARY)
        beside = {kind: payload for level, kind, payload in ancillary if level == socket.SOL_SOCKET}
        word, _, text = data.decode("utf-8", "replace").partition(" ")
        match word:
            case "fault":
                raise OSError(text)
            case "here":
                self._place(_CREDENTIALS.unpack(beside[socket.SCM_CREDENTIALS][: _CREDENTIALS.size])[0])
            case "ask":
                (self.listener,) = struct.unpack("=i", beside[socket.SCM_RIGHTS][:4])
                self.poller.register(self.listener, select.POLLIN)
            case "exit":
                self._exit(text)
            case "stopped" if self.locked and kill_others.is_running(self.candidate):
                pass  # stopped while the others were killed
            case "":
                if not self.ended:
                    self._exit(str(os.waitstatus_to_exitcode(os.waitpid(self.root, 0)[1])))
            case _:
                self.judge.send(data)
        return bool(word)

    def _place(self, pid: int) -> None:
        """Report the candidate's pid, move it to a cgroup that can be frozen, and report that folder."""
        self.candidate = pid
        self.judge.send(f"pid {pid} {self.root}".encode())
        folder = self.group.make_freezable(pid) if self.group is not None else None
        self.frozen_by_group = folder is not None
        if folder is not None:
            self.judge.send(f"freezer {folder}".encode())

    def _exit(self, status: str) -> None:
        self.ended = True
        if self.group is not None and self.group.out_of_memory():
            self.judge.send(b"memory")
        self.judge.send(f"exit {status}".encode())


def _memory(pids: list[int]) -> int:
    pages = 0
    for pid in pids:
        with contextlib.suppress(IndexError):  # it has ended
            fields = text_of(Path(f"/proc/{pid}/statm")).split()
            pages += int(fields[1]) - int(fields[2])
    return pages * resource.getpagesize()


def _overfull(folder: str, most: int) -> bool:
    files = _MOST_FILES
    for path, _, names in os.walk(folder):
        for name in names:
            files -= 1
            with contextlib.suppress(OSError):
                most -= os.lstat(os.path.join(path, name)).st_blocks * 512
            if most < 0 or files < 0:
                return True
    return False


def _end(order: dict[str, Any], judge: socket.socket, group: cgroup.Group | None) -> NoReturn:
    """Kill the whole tree, remove its remains, and exit."""
    uid = None if order["level"] in levels.PRIVATE else order.get("uid")
    if uid is not None:
        _kill_user(uid)
    linux.end_descendants(_PATIENCE_S)
    if group is not None:
        group.remove()
    shutil.rmtree(order.get("folder", ""), ignore_errors=True)
    with contextlib.suppress(OSError):
        judge.send(b"gone")
    os._exit(0)


def _kill_user(uid: int) -> None:
    """Kill a throw-away user's processes in one system call, so that no fork can escape."""
    helper = os.fork()
    if helper == 0:
        os.setresuid(uid, uid, uid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(helper, 0)
