"""The process that runs compilers in sandboxes. `client.py` starts it with an environment of its own; stdlib only.

A request names a command, its source files and its limits; the answer is its status, its log, and the one file it made,
copied out of the sandbox: a regular file of the kind that was asked for (ELF by default), limited in size.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import time
from typing import Any

from ksflow.evaluation.processes import core_pinning, wire
from ksflow.evaluation.sandbox import linux, root
from ksflow.evaluation.sandbox.confine import PREFIX, prepare
from ksflow.evaluation.sandbox.supervisor import supervise

_REQUESTS, _ANSWERS = 0, 1
_LONGEST_LOG = 1 << 20
_LONGEST_WORD = 1 << 14
_GONE_S = 15.0
_FOLDER = re.compile(rf"{root.INSIDE}/|/[^\s\"']*/{PREFIX}[^/\s]*/")
_MAGIC = {"elf": b"\x7fELF", "json": b"{"}  # kind of file -> its first bytes

Json = dict[str, Any]


def main() -> None:
    """Answer requests until the sender is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.umask(0o022)
    linux.set_dumpable(False)
    prepare()
    core_pinning.use_all_cores()
    cores = os.sched_getaffinity(0)
    with contextlib.suppress(wire.Closed):
        while True:
            request = wire.receive(_REQUESTS)
            os.sched_setaffinity(0, cores)
            os.sched_setaffinity(0, core_pinning.unreserved_cores() or cores)  # a kernel may be being timed
            wire.send(_ANSWERS, {**BoxedCommand(request).run(), "id": request["id"]})


class BoxedCommand:
    """One command in one sandbox."""

    def __init__(self, request: Json) -> None:
        self.into: str = request["into"]
        self.wall_s: float = request["wall_s"]
        self.order = {"language": "tool", "cores": [], **request["order"], "files": request["files"]}
        self.words: Json = {}
        self.log = bytearray()

    def run(self) -> Json:
        """Run the command and return its result."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        memory = os.memfd_create("made", os.MFD_CLOEXEC)
        if os.fork() == 0:
            for fd in (ours.detach(), reader, _REQUESTS, _ANSWERS):
                os.close(fd)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(self.order, [theirs.detach(), writer, memory])
        theirs.close()
        os.close(writer)
        with ours, open(reader, "rb", buffering=0) as log, open(memory, "rb") as result:
            in_time = self._wait(ours, log.fileno())
            self._end(ours)
            self._read(log.fileno())
            if self.words.get("exit") == "0" and self.order["makes"]:
                self._keep(result.fileno())
        if not in_time and "gone" not in self.words:  # a supervisor answers whatever the command does
            in_time, self.words = True, {"fault": "its supervisor does not respond"}
        text = _FOLDER.sub("", self.log.decode("utf-8", "replace"))
        return {"words": self.words, "log": text, "timed_out": not in_time}

    def _wait(self, supervisor: socket.socket, log: int) -> bool:
        """Wait; return whether the command ended in time. Exits, and with it the sandbox, when the sender is gone."""
        end = time.monotonic() + self.wall_s
        os.set_blocking(log, False)
        poller = select.poll()
        for source in (supervisor.fileno(), log, _REQUESTS):
            poller.register(source, select.POLLIN if source != _REQUESTS else 0)
        while not {"exit", "fault", "gone", "disk"} & self.words.keys():
            left = end - time.monotonic()
            if left <= 0:
                return False
            for fd, event in poller.poll(left * 1000):
                if fd == _REQUESTS:
                    os._exit(0)
                if fd == supervisor.fileno():
                    self._note(supervisor)
                elif not self._read(log) or event & select.POLLHUP:
                    poller.unregister(log)
        return True

    def _note(self, supervisor: socket.socket) -> bool:
        message = supervisor.recv(_LONGEST_WORD).decode()
        word, _, value = message.partition(" ")
        self.words[word or "gone"] = value
        return word not in ("", "gone")

    def _end(self, supervisor: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            supervisor.send(b"end")
        with contextlib.suppress(ConnectionError, TimeoutError):
            supervisor.settimeout(_GONE_S)
            while self._note(supervisor):
                pass

    def _read(self, log: int) -> bool:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(log, 1 << 20)
            self.log += chunk[: _LONGEST_LOG - len(self.log)]
            return bool(chunk)
        return True

    def _keep(self, file: int) -> None:
        """Copy the file that was made, or report why it is rejected."""
        size, largest = os.fstat(file).st_size, self.order["file_mb"] << 20
        kind = self.order.get("kind", "elf")
        magic = _MAGIC[kind]
        if size > largest or os.pread(file, len(magic), 0) != magic:
            self.words["exit"] = "121"
            self.log += f"the command made no {kind.upper()} file of a valid size\n".encode()
            return
        os.lseek(file, 0, os.SEEK_SET)
        with open(file, "rb", closefd=False) as source, open(self.into, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.chmod(self.into, 0o755)


if __name__ == "__main__":
    main()
