"""The judge's handle on one sandbox: memory slots, messages, time limits, termination.

Each message carries a random number that the answer must repeat, so a kernel cannot answer in advance.
"""

import contextlib
import hashlib
import json
import os
import secrets
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import torch

from ksflow.evaluation.judge.buffers import Buffers, Layout
from ksflow.evaluation.judge.failure import CAUSES, Failure, Log, Overdue, exit_failure, strip_controls, without_values
from ksflow.evaluation.judge.freezer import Freezer, GroupFreezer, SignalFreezer
from ksflow.evaluation.judge.host import SandboxSpec
from ksflow.evaluation.sandbox import linux
from ksflow.evaluation.sandbox.confine import PREFIX, PROCESSES
from ksflow.evaluation.sandbox.kill_others import KEEPS_STARTING
from ksflow.evaluation.sandbox.runners.cpu import CASE, DONE, GO, LARGEST_TEXT, NONCE

_PASSED_ON = ("language", "memory_mb", "cpu_s", "cores", "level", "device", "devices")  # to the supervisor
_SPIN_S = 0.002 if (os.cpu_count() or 1) > 1 else 0.0
_LONGEST_WORD = 1 << 14
_GONE_S = 15.0
_FREEZE_S = 10.0  # a sandbox not frozen by then is blocked in a system call
_LOOK_S = 50e-6
ENDLESS = "an endless loop?"  # begins the reason for a call that was given up before its time limit
_CALL_CPU_S, _TIMES_REFERENCE, _LEAST_WAIT_S = 4.0, 300.0, 0.1
"""Limits of a call that may be given up early: CPU seconds it has at least; multiple of the reference's time; seconds
between looks. CPU time, so that a busy machine does not count against the kernel."""
P = ParamSpec("P")
T = TypeVar("T")


def _or_ended(method: "Callable[Concatenate[Sandbox, P], T]") -> "Callable[Concatenate[Sandbox, P], T]":
    """Turn an error of the system's in a method into the failure of a sandbox that has ended."""

    @wraps(method)
    def asked(sandbox: "Sandbox", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(sandbox, *args, **kwargs)
        except OSError:
            raise sandbox._ended() from None

    return asked


class Sandbox:
    """One candidate process. On exit every process that it started has been killed."""

    _freezer: Freezer | None = None
    _frozen = False
    _group = ""  # cgroup folder that can freeze the sandbox

    def __init__(self, start: SandboxSpec, buffers: Buffers) -> None:
        self.log = Log()
        self._start = start
        self.pid = 0
        self.cores = max(len(start.cores), 1)
        self.exit: int | None = None
        self.layers: dict[str, str] = {}
        self.locked: bool | None = None
        self._cause = ""
        self._others = ""
        self.folder = tempfile.mkdtemp(prefix=PREFIX)
        for name, text in start.files.items():
            Path(self.folder, name).write_text(text, encoding="utf-8")
        buffers.clear()
        self._buffers = buffers
        self.inputs, self.outputs = buffers.inputs, buffers.outputs
        self.supervisor, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket, sandbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [supervisor.detach(), sandbox.detach()]
        try:
            fds += map(os.dup, buffers.fds)
            fds.append(self.log.writer)
            loads = [*filter(None, (start.artefact, start.loop))]
            fds += map(linux.sealed_copy, loads)  # the owner of the original could change its times or mode
            code = fds[-len(loads)]
            if start.digest and hashlib.sha256(os.pread(code, os.fstat(code).st_size, 0)).hexdigest() != start.digest:
                raise OSError(f"{start.artefact} is not what was compiled: another program changed it")
            order = self._order(start, len(fds) - 1 - len(loads) if loads else 0)
            socket.send_fds(start.zygote, [json.dumps(order).encode()], fds)
        except OSError as error:  # no supervisor exists that would remove the folder
            shutil.rmtree(self.folder, ignore_errors=True)
            self._let_go()
            raise Failure("harness", f"no sandbox can be started: {error}") from error
        finally:
            for fd in fds:
                os.close(fd)
        self._poller = select.poll()
        for source in (self.socket, self.supervisor, self.log.reader):
            self._poller.register(source, select.POLLIN)
        self.layout: Layout | None = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the kernel is loaded. Raises Failure."""
        self._until(lambda: bool(self.pid), "it did not start: its zygote or its supervisor does not respond")
        self._answer(b"ready", b"", time.monotonic() + timeout_s, spin_s=0)

    def stage(self, name: str, layout: Layout, dims: list[int], slots: int) -> None:
        """Send a case's layout to the sandbox. Raises Failure."""
        self.layout = layout
        message = {
            "name": name,
            "pieces": [piece.message() for piece in layout.arguments],
            "returned": len(layout.outputs) - len(layout.inout),
            "pitch": [layout.input_bytes, layout.output_bytes],
            "slots": slots,
            "dims": dims,
            **({"binding": dict(layout.binding)} if layout.binding else {}),
        }
        nonce = self._say(CASE, json.dumps(message).encode())
        self._answer(DONE, nonce, time.monotonic() + 30, spin_s=0)

    def keep_one_process(self) -> bool:
        """Lock the sandbox to one process, whose CPU clock then covers all of its work; its other processes are
        killed. Returns False if this system cannot prevent new ones. Raises Failure."""
        with contextlib.suppress(ConnectionError):
            self.supervisor.send(b"lock")
        self._until(lambda: self.locked is not None, "its supervisor does not answer")
        if self._others:
            kind = "cheat" if self._others == KEEPS_STARTING else "timeout"
            raise Failure(kind, self._others)
        return bool(self.locked)

    @_or_ended
    def freeze(self) -> None:
        """Stop all threads of the sandbox's process until `thaw` or `go`. Raises Failure. Call `keep_one_process`
        first: other processes are not stopped."""
        if self._freezer is None:
            self._freezer = GroupFreezer(Path(self._group)) if self._group else SignalFreezer(self.pid)
        self._freezer.stop()
        self._frozen = True
        started = time.perf_counter()
        while not self._freezer.is_stopped():
            waited = time.perf_counter() - started
            if waited > _FREEZE_S:
                raise Failure("timeout", "could not be stopped")
            if waited > _SPIN_S:
                time.sleep(_LOOK_S)

    def thaw(self) -> None:
        if self._frozen and self._freezer is not None:
            self._frozen = False
            with contextlib.suppress(OSError):  # it has ended; the next answer reports that
                self._freezer.resume()

    def seal(self) -> None:
        """Stop passing on the sandbox's own text, because it is about to hold secret inputs."""
        self.log.seal()

    def fill(self, slot: int, packed: torch.Tensor, poison: int) -> None:
        """Copy contents into a slot; fill its outputs with the byte `poison`, or with what they hold before a call."""
        assert self.layout is not None
        self.region(slot, out=True).fill_(poison)
        self.layout.restore(packed, self.region(slot, out=True))
        self.region(slot, out=False).copy_(packed)

    def go(self, slots: bytes, timeout_s: float) -> float:
        """Call the kernel on these slots and return the wall time in seconds. Raises Failure. A frozen sandbox gets
        the message before it is thawed, so that it wakes up once."""
        self._expect_silence()
        started = time.perf_counter()
        nonce = self._say(GO, slots)
        self.thaw()
        self._answer(DONE, nonce, time.monotonic() + timeout_s, _SPIN_S)
        return time.perf_counter() - started

    def go_within_reason(self, slots: bytes, timeout_s: float, reference_s: Callable[[], float]) -> None:
        """Call the kernel without timing it. Raises Failure, early if the call uses far more CPU time than the
        reference, which `reference_s` measures only after the kernel has used several seconds."""
        self._expect_silence()
        nonce, deadline = self._say(GO, slots), time.monotonic() + timeout_s
        began_s, most_s, known_s = self.cpu_s(), _CALL_CPU_S * self.cores, 0.0
        while True:
            left_s = max(began_s + most_s - self.cpu_s(), _LEAST_WAIT_S)
            try:
                self._answer(DONE, nonce, min(deadline, time.monotonic() + left_s), _SPIN_S)
                return
            except Overdue:
                used_s = self.cpu_s() - began_s
                if time.monotonic() > deadline:
                    raise
                if used_s >= most_s and known_s:
                    why = f"{ENDLESS} no answer after {used_s:.0f} s of CPU time, where the reference takes"
                    raise Failure("timeout", f"{why} {known_s:.2g} s") from None
                if used_s >= most_s:
                    known_s = reference_s()
                    most_s = max(most_s, _TIMES_REFERENCE * known_s * self.cores)

    def outputs_of(self, slot: int) -> torch.Tensor:
        """Return a copy of a slot's outputs."""
        return self.region(slot, out=True).clone()

    @_or_ended
    def cpu_s(self) -> float:
        """Return the CPU seconds of the sandbox's process with all its threads. Raises Failure."""
        return linux.cpu_s(self.pid)

    def region(self, slot: int, out: bool) -> torch.Tensor:
        """Return a slot's bytes."""
        assert self.layout is not None
        pitch = self.layout.output_bytes if out else self.layout.input_bytes
        return (self.outputs if out else self.inputs)[slot * pitch : (slot + 1) * pitch]

    def close(self) -> None:
        """Have the supervisor kill every process of the sandbox, and remove its folder."""
        if self.supervisor.fileno() < 0:
            return
        self._buffers.spoiled = True
        if self._freezer is not None:
            self._freezer.close()
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                self.supervisor.send(b"end")
                self.supervisor.settimeout(_GONE_S)
                while (message := self.supervisor.recv(_LONGEST_WORD)) and message != b"gone":
                    with contextlib.suppress(Failure):  # a fault of the supervisor no longer matters
                        self._note(message)
                self._buffers.spoiled = message != b"gone"
            self.log.drain()
        finally:
            self._let_go()

    def _order(self, start: SandboxSpec, artefact: int) -> dict[str, object]:
        """Return the zygote's start message; `artefact` is the index of the compiled kernel among the descriptors."""
        return {
            **start.extra,
            **{name: getattr(start, name) for name in _PASSED_ON},
            "main": next(iter(start.files), ""),
            "folder": self.folder,
            "inputs_bytes": self._buffers.sizes.inputs_bytes,
            "outputs_bytes": self._buffers.sizes.outputs_bytes,
            **({"processes": PROCESSES + 4 * len(start.cores)} if len(start.cores) > 1 else {}),
            "artefact": artefact,
            "loop": bool(start.loop),
        }

    def _let_go(self) -> None:
        os.close(self.log.reader)
        self.supervisor.close()
        self.socket.close()

    @_or_ended
    def _say(self, word: bytes, body: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE)
        self.socket.send(word + nonce + body)
        return nonce

    def _expect_silence(self) -> None:
        """Check that no unread message waits before a call. Raises Failure if one does."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            if message := self.socket.recv(LARGEST_TEXT + 64, socket.MSG_DONTWAIT):
                self._checked(message, b"", b"")

    def _answer(self, word: bytes, nonce: bytes, deadline: float, spin_s: float) -> bytes:
        message = self._spin(spin_s) if spin_s else b""
        with contextlib.nullcontext() if message else self._start.resting():
            while not message:
                message = self._wait(deadline)
        return self._checked(message, word, nonce)

    def _checked(self, message: bytes, word: bytes, nonce: bytes) -> bytes:
        """Return the message after the expected word and number. Raises Failure for any other message."""
        if word and message.startswith(word + nonce):
            return message[len(word + nonce) :]
        kind, _, text = strip_controls(message).partition(" ")
        if kind in ("wrong", "error"):
            raise Failure(kind, without_values(kind, text, self._start.files) if self.log.sealed else text)
        raise Failure("cheat", "sent an answer to no request")

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
            raise Overdue
        self.log.drain()
        if ready.get(self.log.reader, 0) & select.POLLHUP:
            self._poller.unregister(self.log.reader)
        if self.socket.fileno() in ready:
            with contextlib.suppress(ConnectionError):
                if message := self.socket.recv(LARGEST_TEXT + 64):
                    return message
            raise self._ended()
        if self.supervisor.fileno() in ready:
            return self._handle_supervisor()
        if time.monotonic() > deadline:
            raise Overdue
        return b""

    def _handle_supervisor(self) -> bytes:
        """Read a message of the supervisor. Returns the sandbox's last message if it has ended. Raises Failure."""
        self._note(self._supervisor_message())
        if self._cause.startswith("stopped"):
            raise Failure("timeout", CAUSES["stopped"])
        if self.exit is None:
            return b""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            if message := self.socket.recv(LARGEST_TEXT + 64, socket.MSG_DONTWAIT):
                return message
        raise self._ended()

    def _until(self, known: Callable[[], bool], missing: str) -> None:
        """Read the supervisor's messages until `known()`. Raises Failure; "harness" for a fault of the supervisor."""
        end = time.monotonic() + self._start.supervisor_s
        while not known():
            if not select.select([self.supervisor], [], [], max(end - time.monotonic(), 0))[0]:
                raise Failure("harness", missing)
            if not (word := self._supervisor_message()):
                raise self._ended()
            self._note(word)

    def _supervisor_message(self) -> bytes:
        try:
            return self.supervisor.recv(_LONGEST_WORD)
        except ConnectionError:
            return b""

    def _note(self, message: bytes) -> None:
        word, _, value = message.decode().partition(" ")
        if word == "pid":
            self.pid = int(value.split()[0])
        elif word == "freezer":
            self._group = value
        elif word == "exit":
            self.exit = int(value)
        elif word == "locked":
            number, _, self._others = value.partition(" ")
            self.locked = number == "1"
        elif word == "layers":
            self.layers = json.loads(value)
        elif word in ("memory", "disk", "stopped"):
            self._cause = message.decode()
        elif word == "fault" or (not word and self.exit is None):
            raise Failure("harness", value or "the supervisor of the sandbox is gone")

    def _ended(self) -> Failure:
        end = time.monotonic() + 2
        while self.exit is None and time.monotonic() < end:
            if select.select([self.supervisor], [], [], 0.1)[0]:
                self._note(self._supervisor_message())
        self.log.drain()
        return exit_failure(self._cause, self.exit)
