"""The judge's handle on one box: slots in shared memory, messages, watchdog, log, and its end."""

import contextlib
import json
import mmap
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import dataclass, field

import torch

from ksflow.stages.evaluator.box.shim import LARGEST_TEXT
from ksflow.stages.evaluator.judge.cases import Entry, Layout

_SPIN_S = 0.002
_POISON = 0xFF
_LOG_PART = 2000
_GONE_S = 15.0


class Failure(Exception):
    """The box did not do what it was told: `kind` is error, wrong, exit or timeout."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


@dataclass(frozen=True)
class Start:
    """What a box is started with."""

    zygote: socket.socket
    language: str
    files: dict[str, str] = field(default_factory=dict)
    artefact: str = ""
    memory_mb: int = 4096
    cpu_s: int = 600
    core: int | None = None
    level: str = "rlimits"


@dataclass(frozen=True)
class Room:
    """How much shared memory a box gets: the largest case decides."""

    inputs_bytes: int
    outputs_bytes: int


class Log:
    """A pipe that is drained while waiting; its head and tail are kept."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.head, self.tail, self.total = b"", b"", 0

    def drain(self) -> None:
        """Read what is there."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reader, 1 << 16):
                self.total += len(chunk)
                room = _LOG_PART - len(self.head)
                self.head += chunk[:room]
                self.tail = (self.tail + chunk[max(room, 0) :])[-_LOG_PART:]
                if len(chunk) < 1 << 16:
                    return

    def text(self) -> str:
        """Head and tail, with what is missing between them."""
        lost = self.total - len(self.head) - len(self.tail)
        gap = f"\n... {lost} bytes ...\n".encode() if lost else b""
        return (self.head + gap + self.tail).decode("utf-8", "replace")


class Box:
    """One candidate process. `with Box(...) as box`: whatever it started is dead afterwards."""

    def __init__(self, start: Start, room: Room) -> None:
        self.log = Log()
        self.pid = 0
        self.exit: int | None = None
        self.folder = tempfile.mkdtemp(prefix="ksflow-box-")
        for name, text in start.files.items():
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
        self.inputs, inputs = _memory("inputs", room.inputs_bytes)
        self.outputs, outputs = _memory("outputs", room.outputs_bytes)
        self.keeper, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket, box = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [keeper.detach(), box.detach(), inputs, outputs, self.log.writer]
        if start.artefact:
            fds.append(os.open(start.artefact, os.O_RDONLY))
        order = {
            "language": start.language,
            "main": next(iter(start.files), ""),
            "folder": self.folder,
            "inputs_bytes": room.inputs_bytes,
            "outputs_bytes": room.outputs_bytes,
            "memory_mb": start.memory_mb,
            "cpu_s": start.cpu_s,
            "core": start.core,
            "level": start.level,
        }
        try:
            socket.send_fds(start.zygote, [json.dumps(order).encode()], fds)
        except OSError as error:  # nobody is left who would remove it
            shutil.rmtree(self.folder, ignore_errors=True)
            raise Failure("harness", f"the zygote is gone: {error}") from error
        for fd in fds:
            os.close(fd)
        self._poller = select.poll()
        for source in (self.socket, self.keeper, self.log.reader):
            self._poller.register(source, select.POLLIN)
        self.layout: Layout | None = None

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self, timeout_s: float) -> None:
        """Wait until the kernel is loaded. Raises Failure."""
        self._answer(b"ready", time.monotonic() + timeout_s, spin_s=0)
        if not self.pid:
            self._note(self._keeper_word())

    def stage(self, layout: Layout, dims: list[int], slots: int) -> None:
        """Tell the box how a case's tensors lie. Raises Failure."""
        self.layout = layout
        message = {
            "pieces": [piece.message() for piece in layout.pieces],
            "pitch": [layout.input_bytes, layout.output_bytes],
            "slots": slots,
            "dims": dims,
        }
        self._say(b"case" + json.dumps(message).encode())
        self._answer(b"done", time.monotonic() + 30, spin_s=0)

    def fill(self, slot: int, entry: Entry) -> None:
        """Put contents into a slot, and poison into its outputs."""
        self.region(slot, out=True).fill_(_POISON)
        self.region(slot, out=False).copy_(entry.packed)

    def go(self, slots: bytes, timeout_s: float) -> float:
        """Have the kernel called on these slots; the judge's wall clock around it, in seconds. Raises Failure."""
        spin = _SPIN_S if (os.cpu_count() or 1) > 1 else 0.0
        started = time.perf_counter()
        self._say(b"go" + slots)
        self._answer(b"done", time.monotonic() + timeout_s, spin)
        return time.perf_counter() - started

    def cpu_s(self) -> float:
        """The CPU time of the box's process, as the kernel counts it."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def region(self, slot: int, out: bool) -> torch.Tensor:
        """A slot's bytes."""
        assert self.layout is not None
        pitch = self.layout.output_bytes if out else self.layout.input_bytes
        return (self.outputs if out else self.inputs)[slot * pitch : (slot + 1) * pitch]

    def close(self) -> None:
        """Have the keeper kill everything that the box started, and remove its folder."""
        if self.keeper.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self.keeper.send(b"end")
            self.keeper.settimeout(_GONE_S)
            while (message := self.keeper.recv(64)) and message != b"gone":
                self._note(message)
        self.log.drain()
        os.close(self.log.reader)
        self.keeper.close()
        self.socket.close()

    # -- inside ----------------------------------------------------------------------------------

    def _say(self, message: bytes) -> None:
        try:
            self.socket.send(message)
        except OSError:
            raise self._ended() from None

    def _answer(self, wanted: bytes, deadline: float, spin_s: float) -> None:
        message = self._spin(spin_s) if spin_s else b""
        while not message:
            message = self._wait(deadline)
        if message == wanted:
            return
        kind, _, text = message.decode("utf-8", "replace").partition(" ")
        raise Failure(kind if kind in ("wrong", "error") else "error", text or "nonsense from the box")

    def _spin(self, seconds: float) -> bytes:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                return self.socket.recv(LARGEST_TEXT + 64, socket.MSG_DONTWAIT)
        return b""

    def _wait(self, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        ready = dict(self._poller.poll(max(left, 0) * 1000))
        if not ready:
            raise Failure("timeout", "no answer in time")
        self.log.drain()
        if ready.get(self.log.reader, 0) & select.POLLHUP:
            self._poller.unregister(self.log.reader)
        if self.socket.fileno() in ready:
            with contextlib.suppress(ConnectionError):
                if message := self.socket.recv(LARGEST_TEXT + 64):
                    return message
            raise self._ended()
        if self.keeper.fileno() in ready:
            self._note(self._keeper_word())
            if self.exit is not None:
                return self._last_word()
        if time.monotonic() > deadline:
            raise Failure("timeout", "no answer in time")
        return b""

    def _last_word(self) -> bytes:
        """What the box said before it ended. Raises Failure when that was nothing."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            if message := self.socket.recv(LARGEST_TEXT + 64, socket.MSG_DONTWAIT):
                return message
        raise self._ended()

    def _keeper_word(self) -> bytes:
        try:
            return self.keeper.recv(64)
        except OSError:
            return b""

    def _note(self, message: bytes) -> None:
        word, _, value = message.decode().partition(" ")
        if word == "pid":
            self.pid = int(value)
        elif word == "exit":
            self.exit = int(value)
        elif not word and self.exit is None:
            raise Failure("harness", "the keeper of the box is gone")

    def _ended(self) -> Failure:
        """The box hung up or ended: wait a moment for how."""
        end = time.monotonic() + 2
        while self.exit is None and time.monotonic() < end:
            if select.select([self.keeper], [], [], 0.1)[0]:
                self._note(self._keeper_word())
        self.log.drain()
        if self.exit is None:
            return Failure("exit", "closed its socket")
        if self.exit >= 0:
            return Failure("exit", f"exited with status {self.exit}")
        number = -self.exit
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        if name in ("SIGXCPU",):
            return Failure("timeout", "used up its CPU time")
        hint = ", perhaps for its memory" if name == "SIGKILL" else ""
        return Failure("exit", f"killed by {name}{hint}")


def _memory(name: str, size: int) -> tuple[torch.Tensor, int]:
    """Shared memory as bytes, and its descriptor."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8), fd
