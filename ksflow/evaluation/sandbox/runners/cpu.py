"""The candidate's own process, confined: loads the kernel, then calls it on the slots that the judge names.

The judge trusts nothing that this process says: it reads the output bytes and its own clock. Messages from the judge
are CASE + number + JSON (layout of the tensors) and GO + number + slots; answers are `ready`, DONE + the same number,
`wrong` + text, `error` + text.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

_OURS = (os.path.dirname(__file__), "<frozen ")
"""Where files begin whose frames are none of the kernel's."""
LARGEST_TEXT = 4000
LARGEST_MESSAGE = 1 << 16
NONCE = 8
CASE, GO, DONE = b"ca", b"go", b"ok"
_POPULATE = mmap.MAP_SHARED | mmap.MAP_POPULATE
Call = Callable[[], None]
Json = dict[str, Any]


class WrongResult(Exception):
    """The kernel returned a value that is not a result: wrong number, type or shape."""


class Runner(Protocol):
    """Calls kernels of one language."""

    def stage(self, case: Json, inputs: Any, outputs: Any) -> list[Call]:
        """Return one ready call per slot. The regions are `mmap`s, or addresses on a device."""


def prepare(order: Json) -> None:
    """Import the runner of such a kernel, while a failure cannot be the kernel's fault."""
    mode = order.get("device", {}).get("mode", "")
    if order["language"] == "triton" and not mode:
        importlib.import_module("ksflow.evaluation.sandbox.runners.interpreted")
    elif order["language"] != "cpp" and mode in ("", "torch"):
        importlib.import_module("ksflow.evaluation.sandbox.runners.torch_kernel")


def run(order: Json, fds: list[int]) -> None:
    """Run the sandbox; never returns. `fds`: socket, inputs, outputs, log, then the artefact and its `loop` if any."""
    socket_fd, inputs_fd, outputs_fd, log_fd, *artefact = fds
    loop = f"/proc/self/fd/{artefact.pop()}" if order.get("loop") else ""
    with report_end(socket_fd, log_fd) as judge:
        inputs = mmap.mmap(inputs_fd, order["inputs_bytes"], _POPULATE)
        outputs = mmap.mmap(outputs_fd, order["outputs_bytes"], _POPULATE)
        runner = _runner(order, artefact)
        receive = partial(judge.recv, LARGEST_MESSAGE)
        if loop and isinstance(runner, Native):
            receive = partial(NativeLoop(loop).receive, judge, runner)
        judge.send(b"ready")
        _serve(judge, receive, runner, inputs, outputs)


@contextlib.contextmanager
def report_end(socket_fd: int, log_fd: int) -> Iterator[socket.socket]:
    """Yield the socket to the judge, report how the block ends, and exit."""
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    judge = socket.socket(fileno=socket_fd)
    status = 1
    try:
        yield judge
        status = 0
    except WrongResult as error:
        _tell(judge, "wrong", str(error))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - the child's entry: whatever a candidate raises is reported
        _tell(judge, "error", _explain(error))
    finally:
        os._exit(status & 0xFF)


def _serve(
    judge: socket.socket, receive: Callable[[], bytes], runner: Runner, inputs: mmap.mmap, outputs: mmap.mmap
) -> None:
    calls: list[Call] = []
    while message := receive():
        word, nonce, body = message[:2], message[2 : 2 + NONCE], message[2 + NONCE :]
        if word == GO:
            for slot in body:
                calls[slot]()
        else:
            calls = runner.stage(json.loads(body), inputs, outputs)
        judge.send(DONE + nonce)


def _runner(order: Json, artefact: list[int]) -> Runner:
    if order["language"] == "cpp":
        return Native(f"/proc/self/fd/{artefact[0]}" if artefact else None)
    log_by_line()
    if order["language"] == "triton":
        from ksflow.evaluation.sandbox.runners.interpreted import TritonInterpreted

        return TritonInterpreted(order)
    from ksflow.evaluation.sandbox.runners.torch_kernel import TorchRunner

    return TorchRunner(order["main"])


def log_by_line() -> None:
    """Write Python's output to the log line by line, because nothing is flushed when a sandbox ends."""
    sys.stdout = open(1, "w", 1, "utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stderr = open(2, "w", 1, "utf-8", closefd=False)  # noqa: SIM115


class Native:
    """A shared object with `custom_kernel(pointers..., sizes..., strides, extra...)`, extra being a GPU's stream;
    without a library, a call that does nothing.
    """

    def __init__(self, library: str | None, *extra: None) -> None:
        loaded = ctypes.CDLL(library)
        self.function = loaded.custom_kernel if library else loaded.abs
        self.function.restype = None
        self.arguments: list[list[int]] = []  # of one call on each slot
        self._extra = len(extra)

    def stage(self, case: Json, inputs: mmap.mmap | int, outputs: mmap.mmap | int) -> list[Call]:
        """Return one ready call per slot."""
        bases = [
            region if isinstance(region, int) else ctypes.addressof(ctypes.c_char.from_buffer(region))
            for region in (inputs, outputs)
        ]
        strides = [stride for piece in case["pieces"] for stride in piece["strides"]]
        self._flat = (ctypes.c_int64 * max(len(strides), 1))(*strides)
        last = [*case["dims"], ctypes.addressof(self._flat), *[0] * self._extra]
        self.arguments = [[*pointers(case, bases, slot), *last] for slot in range(case["slots"])]
        return [partial(self.function, *map(ctypes.c_int64, row)) for row in self.arguments]


class NativeLoop:
    """Answers calls of a native kernel in C++ (`loop.cpp`): Python's part of a call takes longer than short kernels,
    and a kernel that replaces the harness would skip it."""

    _most = 64

    def __init__(self, library: str) -> None:
        self._serve = ctypes.CDLL(library).serve
        self._serve.restype = ctypes.c_long
        self._message = ctypes.create_string_buffer(LARGEST_MESSAGE)

    def receive(self, judge: socket.socket, native: Native) -> bytes:
        """Return the next message that is not a call, or that Python must answer because it has too many arguments."""
        rows = native.arguments
        if rows and len(rows[0]) > self._most:
            return judge.recv(LARGEST_MESSAGE)
        padded = [value for row in rows for value in (*row, *[0] * (self._most - len(row)))]
        table = (ctypes.c_int64 * len(padded))(*padded)
        where = (judge.fileno(), self._message, ctypes.c_long(LARGEST_MESSAGE))
        size = self._serve(*where, native.function, table, ctypes.c_long(len(rows)))
        return ctypes.string_at(self._message, max(size, 0))


def pointers(case: Json, bases: Sequence[int], slot: int) -> list[int]:
    """Return the addresses of a slot's tensors."""
    return [bases[piece["out"]] + slot * case["pitch"][piece["out"]] + piece["offset"] for piece in case["pieces"]]


def _explain(error: BaseException) -> str:
    first = f"{type(error).__name__}: {error}".strip()
    if isinstance(error, SyntaxError):  # the line and the place in it, without the frames of the import
        return first + "\n" + "".join(traceback.format_exception_only(error)[:-1])
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(_OURS)]
    return first + "\n" + "".join(traceback.format_list(frames[-8:]))


def _tell(judge: socket.socket, kind: str, text: str) -> None:
    sys.stdout.flush()
    try:
        judge.send(f"{kind} {text}".encode("utf-8", "replace")[:LARGEST_TEXT])
    except OSError:
        os._exit(1)
