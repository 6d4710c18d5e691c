"""The candidate's process on a GPU: queues calls behind gates, reports when they are queued and how long they took.

Inputs and outputs are device memory that the judge made for this sandbox alone. Every call has a number. The call waits
on the default stream until the judge's word, in memory that both processes and the device share, reaches that number.
Then come a small write of this process, during which the device fetches the commands of the call as without a wait; an
event, the call, another event; in some calls a copy of some bytes of the outputs at a place that the judge draws; and
the same number as this sandbox's word. The judge writes the inputs of a call only after the word of the previous call.
So host work is done before any inputs exist, the clocks measure the device's work only, no call finds the inputs of
another one, and outputs that are written after the stream has ended differ from that copy.
Messages are those of `cpu`, with GO + number + first call + place + slots, and QUEUED + number before DONE + number +
times.
"""

import base64
import ctypes
import json
import mmap
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ksflow.evaluation.sandbox.driver import Driver, Pointer, open_driver, torch_device
from ksflow.evaluation.sandbox.runners import cpu
from ksflow.evaluation.sandbox.runners.cpu import DONE, GO, LARGEST_MESSAGE, NONCE, Call, Json, Native, Runner
from ksflow.evaluation.sandbox.tensor_maps import TENSOR_MAP_BYTES

QUEUED = b"qu"
FIRST = struct.Struct("=Iq")  # the number of an order's first call, and the place of its sample in the outputs
NO_SAMPLE = -1
TIME = struct.Struct("=d")
GATE_BYTES = 4096
_SCRATCH_BYTES = 64
_SIZES = {"int": 4, "arg": 8, "workspace": 8, "tensor_map": TENSOR_MAP_BYTES}
"""Bytes of a launch's arguments, if neither driver nor compiler reports the parameters' sizes."""
FLAG, SAMPLE, SAMPLE_BYTES = 64, 128, 64
"""Offsets in the shared page of the sandbox's word (the judge's is at 0) and of the sample of the outputs."""


def run(order: Json, fds: list[int]) -> None:
    """Run the sandbox; never returns. `fds`: socket, inputs, outputs, the gate's page, log, and the artefact if any."""
    socket_fd, inputs_fd, outputs_fd, gate_fd, log_fd, *artefact = fds
    platform = order["device"]["platform"]
    if visible := order["device"]["visible"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    with cpu.report_end(socket_fd, log_fd) as judge:
        if order["device"]["mode"].endswith("torch"):
            import torch

            torch.zeros(1, device=torch_device(platform))  # creates the context as torch wants it
        driver = open_driver(platform)
        inputs = driver.map_shared(inputs_fd, order["inputs_bytes"])
        outputs = driver.map_shared(outputs_fd, order["outputs_bytes"])
        gate = Gate(driver, gate_fd)
        runner = _runner(order, driver, artefact)
        judge.send(b"ready")
        _serve(judge, gate, runner, (inputs, outputs))


class Gate:
    """A page of memory shared by the judge, this process and the device."""

    def __init__(self, driver: Driver, fd: int) -> None:
        self.driver = driver
        self._page = mmap.mmap(fd, GATE_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self.word = driver.map_host(self._address, GATE_BYTES)
        self._scratch = driver.allocate(_SCRATCH_BYTES)
        self._events: list[tuple[Any, Any]] = []

    def queue(self, first: int, calls: Sequence[tuple[Call, Pointer | None]]) -> None:
        """Queue calls on the stream, each between the judge's word and this process' word.

        calls: each with the place of the bytes of its outputs that are copied when it has ended, or None.
        """
        while len(self._events) < len(calls):
            self._events.append((self.driver.event(), self.driver.event()))
        for number, ((call, sample), (before, after)) in enumerate(zip(calls, self._events, strict=False), first):
            self.driver.wait(self.word, number)
            self.driver.clear(self._scratch, _SCRATCH_BYTES)  # meanwhile the device fetches the following commands
            self.driver.record(before)
            self.driver.submit(call)
            self.driver.record(after)
            if sample is not None:
                self.driver.copy_out(sample, self._address + SAMPLE, SAMPLE_BYTES)
            self.driver.write(self.word + FLAG, number)

    def times_us(self, count: int) -> list[float]:
        """Wait for the latest calls, and return the µs of each."""
        self.driver.synchronize()
        return [self.driver.elapsed_us(*pair) for pair in self._events[:count]]


def _serve(judge: socket.socket, gate: Gate, runner: Runner, regions: tuple[Pointer, Pointer]) -> None:
    calls: list[Call] = []
    pitch = 0
    while message := judge.recv(LARGEST_MESSAGE):
        word, nonce, body = message[:2], message[2 : 2 + NONCE], message[2 + NONCE :]
        answer = b""
        if word == GO:
            slots = body[FIRST.size :]
            first, place = FIRST.unpack_from(body)
            samples = [None if place == NO_SAMPLE else regions[1] + slot * pitch + place for slot in slots]
            gate.queue(first, list(zip((calls[slot] for slot in slots), samples, strict=True)))
            judge.send(QUEUED + nonce)
            answer = b"".join(map(TIME.pack, gate.times_us(len(slots))))
        else:
            case = json.loads(body)
            calls, pitch = runner.stage(case, *regions), case["pitch"][1]
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
            return Native(f"/proc/self/fd/{artefact[0]}", None)
    from ksflow.evaluation.sandbox.runners.torch_kernel import TorchRunner

    cpu.log_by_line()
    return TorchRunner(order["main"], torch_device(order["device"]["platform"]))


class Launcher:
    """Launches device code: no code of the candidate runs on the host."""

    def __init__(self, driver: Driver, container: Mapping[str, Any]) -> None:
        self.driver = driver
        self.container = container
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._workspaces: dict[str, list[Pointer]] = {}

    def stage(self, case: Json, inputs: Pointer, outputs: Pointer) -> list[Call]:
        """Return one ready call per slot."""
        plan = self.container["plans"][case["name"]]
        if case["name"] not in self._workspaces:
            self._workspaces[case["name"]] = [self.driver.allocate(size) for size in plan["workspaces"]]
        return [
            self._call(plan, cpu.pointers(case, (inputs, outputs), slot), self._workspaces[case["name"]])
            for slot in range(case["slots"])
        ]

    def _call(self, plan: Json, tensors: list[Pointer], workspaces: list[Pointer]) -> Call:
        places: dict[str, list[Any]] = {"arg": tensors, "workspace": workspaces}
        places["tensor_map"] = [
            self.driver.tensor_map(places[kind][index], described)
            for described in plan["tensor_maps"]
            for kind, index in [described["place"]]
        ]
        ready = [self._launch(launch, places) for launch in plan["launches"]]

        def call() -> None:
            for function, shape, shared, arguments, pdl, _ in ready:
                self.driver.launch(function, shape, shared, arguments, pdl)

        return call

    def _launch(self, launch: Json, places: Mapping[str, list[Any]]) -> tuple[Any, ...]:
        if (index := launch["code"]) not in self._modules:
            self._modules[index] = self.driver.load(base64.b64decode(self.container["codes"][index]))
        function = self.driver.function(self._modules[index], launch["kernel"], launch["shared"])
        values = [value if kind == "int" else places[kind][value] for kind, value in launch["args"]]
        sizes = self.driver.parameters(function) or launch["parameters"]
        sizes = sizes or [_SIZES[kind] for kind, _ in launch["args"]]
        if len(sizes) < len(values) or (len(sizes) > len(values) and not launch["spare"]):
            raise ValueError(f"{launch['kernel']} takes {len(sizes)} arguments, its launch line has {len(values)}")
        for (kind, _), size in zip(launch["args"], sizes, strict=False):
            if (kind == "tensor_map") != (size == TENSOR_MAP_BYTES):
                raise ValueError(
                    f"{launch['kernel']}: a tensor map of the launch line is a parameter "
                    f"`const __grid_constant__ CUtensorMap` of the function, {TENSOR_MAP_BYTES} bytes; nothing else is"
                )
        values += [0] * (len(sizes) - len(values))  # Triton's scratch
        arguments = [
            ctypes.create_string_buffer(value.to_bytes(size, "little", signed=value < 0), size)
            if isinstance(value, int)
            else value
            for value, size in zip(values, sizes, strict=True)
        ]
        addresses = (ctypes.c_void_p * max(len(arguments), 1))(*map(ctypes.addressof, arguments))
        shape = [*launch["grid"], *launch["block"]]
        return function, shape, launch["shared"], addresses, launch["pdl"], arguments


class Null:
    """The null kernel: writes zeros over the outputs as fast as the device can. Its own events can be trusted."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def stage(self, case: Json, inputs: Pointer, outputs: Pointer) -> list[Call]:
        """Return one ready call per slot."""
        size = sum(piece["bytes"] for piece in case["pieces"] if piece["out"])
        return [partial(self.driver.clear, outputs + slot * case["pitch"][1], size) for slot in range(case["slots"])]
