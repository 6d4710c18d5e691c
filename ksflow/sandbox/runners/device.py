"""The candidate's process on a GPU: queue calls behind gates, say when they are queued and how long they took.

Inputs and outputs are device memory that the judge made for this box alone. Every call has a number. On the default
stream it waits until the judge's word, in memory that both processes and the device see, has reached that number; then
comes a small write of this process's own, during which the device fetches the commands of the call, as it would have
had it not waited; then an event, the call, another event, and the same number as this box's word. The judge writes the
inputs of a call only after the word of the call before it. So what the host has to do is done before any inputs exist,
the clocks see the device's work only, and no call finds the inputs of another one.

Messages are those of `cpu`, with GO + number + first call + slots, and QUEUED + number before DONE + number + times.
"""

import base64
import ctypes
import json
import mmap
import os
import signal
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from ksflow.sandbox.driver import Driver, Pointer, open_driver, torch_device
from ksflow.sandbox.runners.cpu import DONE, GO, LARGEST_MESSAGE, NONCE, answering, speak

QUEUED = b"qu"
FIRST = struct.Struct("=I")
"""The number of an order's first call."""
TIME = struct.Struct("=d")
GATE_BYTES = 4096
_SCRATCH_BYTES = 64
FLAG = 64
"""Where in the shared page the box's word is; the judge's is at 0."""

Call = Callable[[], None]
Json = dict[str, Any]


class Runner(Protocol):
    """Knows how to call a kernel of one kind."""

    def stage(self, case: Json, inputs: Pointer, outputs: Pointer) -> list[Call]:
        """One ready call per slot, which starts the kernel on the default stream."""


def run(order: Json, fds: list[int]) -> NoReturn:
    """Be the box. `fds`: socket, inputs, outputs, the gate's page, log, and the artefact where there is one."""
    socket_fd, inputs_fd, outputs_fd, gate_fd, log_fd, *artefact = fds
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    judge = socket.socket(fileno=socket_fd)
    platform = order["device"]["platform"]
    with answering(judge):
        if order["device"]["mode"].endswith("torch"):
            import torch

            torch.zeros(1, device=torch_device(platform))  # the context, as torch wants it
        driver = open_driver(platform)
        inputs, outputs = (
            driver.map_shared(fd, order[size])
            for fd, size in ((inputs_fd, "inputs_bytes"), (outputs_fd, "outputs_bytes"))
        )
        gate = Gate(driver, gate_fd)
        runner = _runner(order, driver, artefact)
        judge.send(b"ready")
        _serve(judge, gate, runner, (inputs, outputs))
    raise AssertionError("a box never returns")


class Gate:
    """A page of memory that the judge, this process and the device see."""

    def __init__(self, driver: Driver, fd: int) -> None:
        self.driver = driver
        self._page = mmap.mmap(fd, GATE_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self.word = driver.map_host(address, GATE_BYTES)
        self._scratch = driver.allocate(_SCRATCH_BYTES)
        self._events: list[tuple[Any, Any]] = []

    def queue(self, first: int, calls: Sequence[Call]) -> None:
        """Put calls on the stream, each behind the judge's word for it, with this process's word after it."""
        while len(self._events) < len(calls):
            self._events.append((self.driver.event(), self.driver.event()))
        for number, (call, (before, after)) in enumerate(zip(calls, self._events, strict=False), first):
            self.driver.wait(self.word, number)
            self.driver.clear(self._scratch, _SCRATCH_BYTES)  # meanwhile the device fetches what follows
            self.driver.record(before)
            self.driver.submit(call)
            self.driver.record(after)
            self.driver.write(self.word + FLAG, number)

    def times_us(self, count: int) -> list[float]:
        """How long each of the latest calls took, once all are done."""
        self.driver.synchronize()
        return [self.driver.elapsed_us(*pair) for pair in self._events[:count]]


def _serve(judge: socket.socket, gate: Gate, runner: Runner, regions: tuple[Pointer, Pointer]) -> None:
    calls: list[Call] = []
    while message := judge.recv(LARGEST_MESSAGE):
        word, nonce, body = message[:2], message[2 : 2 + NONCE], message[2 + NONCE :]
        answer = b""
        if word == GO:
            slots = body[FIRST.size :]
            (first,) = FIRST.unpack_from(body)
            gate.queue(first, [calls[slot] for slot in slots])
            judge.send(QUEUED + nonce)
            answer = b"".join(map(TIME.pack, gate.times_us(len(slots))))
        else:
            calls = runner.stage(json.loads(body), *regions)
            gate.driver.synchronize()
        judge.send(DONE + nonce + answer)


def _runner(order: Json, driver: Driver, artefact: list[int]) -> Runner:
    match order["device"]["mode"]:
        case "launch":
            with open(artefact[0], "rb") as file:
                return Launcher(driver, json.load(file))
        case "null" | "null torch":
            return Null(driver)
        case "native":
            return Native(f"/proc/self/fd/{artefact[0]}")
    from ksflow.sandbox.runners.torch_kernel import DeviceRunner

    speak()
    return DeviceRunner(order["main"], torch_device(order["device"]["platform"]))


class Launcher:
    """Device code and how to launch it: nothing of the candidate's runs on the host."""

    def __init__(self, driver: Driver, container: Mapping[str, Any]) -> None:
        self.driver = driver
        self.container = container
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._workspaces: dict[str, list[Pointer]] = {}

    def stage(self, case: Json, inputs: Pointer, outputs: Pointer) -> list[Call]:
        """One ready call per slot."""
        plan = self.container["plans"][case["name"]]
        if case["name"] not in self._workspaces:
            self._workspaces[case["name"]] = [self.driver.allocate(size) for size in plan["workspaces"]]
        return [
            self._call(plan["launches"], pointers(case, (inputs, outputs), slot), self._workspaces[case["name"]])
            for slot in range(case["slots"])
        ]

    def _call(self, launches: Sequence[Json], tensors: list[Pointer], workspaces: list[Pointer]) -> Call:
        ready = [self._launch(launch, tensors, workspaces) for launch in launches]

        def call() -> None:
            for function, shape, shared, arguments, _ in ready:
                self.driver.launch(function, shape, shared, arguments)

        return call

    def _launch(self, launch: Json, tensors: list[Pointer], workspaces: list[Pointer]) -> tuple[Any, ...]:
        function = self.driver.function(self._module(launch["code"]), launch["kernel"], launch["shared"])
        values = {"arg": tensors, "workspace": workspaces}
        numbers = [value if kind == "int" else values[kind][value] for kind, value in launch["args"]]
        sizes = self.driver.parameters(function) or launch["parameters"]
        sizes = sizes or [4 if kind == "int" else 8 for kind, _ in launch["args"]]
        if len(sizes) < len(numbers) or (len(sizes) > len(numbers) and not launch["spare"]):
            raise ValueError(f"{launch['kernel']} takes {len(sizes)} arguments, its launch line has {len(numbers)}")
        numbers += [0] * (len(sizes) - len(numbers))  # Triton's scratch
        kept = [ctypes.create_string_buffer(_bytes(*pair), pair[1]) for pair in zip(numbers, sizes, strict=True)]
        addresses = (ctypes.c_void_p * max(len(kept), 1))(*map(ctypes.addressof, kept))
        return function, [*launch["grid"], *launch["block"]], launch["shared"], addresses, kept

    def _module(self, index: int) -> ctypes.c_void_p:
        if index not in self._modules:
            self._modules[index] = self.driver.load(base64.b64decode(self.container["codes"][index]))
        return self._modules[index]


class Null:
    """The null kernel: it writes zeros over the outputs, as fast as the device can, so that what follows finds them
    where any kernel leaves them. What its own calls take is known from its events, which can be trusted.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def stage(self, case: Json, inputs: Pointer, outputs: Pointer) -> list[Call]:
        """One ready call per slot."""
        size = sum(piece["bytes"] for piece in case["pieces"] if piece["out"])
        return [self._call(outputs + slot * case["pitch"][1], size) for slot in range(case["slots"])]

    def _call(self, pointer: Pointer, size: int) -> Call:
        return lambda: self.driver.clear(pointer, size)


class Native:
    """A shared object with `custom_kernel(pointers..., sizes..., strides, stream)`; its pointers are the device's."""

    def __init__(self, library: str) -> None:
        self.function = ctypes.CDLL(library).custom_kernel
        self.function.restype = None

    def stage(self, case: Json, inputs: Pointer, outputs: Pointer) -> list[Call]:
        """One ready call per slot."""
        strides = [stride for piece in case["pieces"] for stride in piece["strides"]]
        flat = (ctypes.c_int64 * max(len(strides), 1))(*strides)
        sizes = [ctypes.c_int64(value) for value in case["dims"]]
        return [
            self._call([*map(ctypes.c_void_p, pointers(case, (inputs, outputs), slot)), *sizes, flat, None])
            for slot in range(case["slots"])
        ]

    def _call(self, arguments: list[Any]) -> Call:
        return lambda: self.function(*arguments)


def pointers(case: Json, bases: tuple[Pointer, Pointer], slot: int) -> list[Pointer]:
    """Where a slot's tensors lie."""
    return [bases[piece["out"]] + slot * case["pitch"][piece["out"]] + piece["offset"] for piece in case["pieces"]]


def _bytes(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little", signed=number < 0)
