"""One GPU, from the judge's side: its own context, memory for boxes, boxes behind a gate, the device's state.

A turn: the box queues K calls behind a gate; the judge poisons the outputs, starts its clock, writes the inputs,
empties the cache, opens the gate, waits for the box's word, copies the outputs and stops its clock. From that a null
kernel's turn on the same contents is taken off. Inputs are written, and outputs copied, by kernels of the judge's own
context, which shares the device's processors with the box's by turns: work done ahead of the gate or after the word
delays them, and is paid for. A box's own device events count only where they agree with that clock.
"""

import contextlib
import mmap
import os
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ksflow.stages.evaluator.box import native
from ksflow.stages.evaluator.box.device import FLAG, GATE_BYTES, QUEUED, TIME, TURN
from ksflow.stages.evaluator.box.driver import Driver, DriverError, open_driver, torch_device
from ksflow.stages.evaluator.box.shim import DONE, GO, NONCE
from ksflow.stages.evaluator.box.torch_shim import device_bytes
from ksflow.stages.evaluator.judge.amdgpu import Amdgpu
from ksflow.stages.evaluator.judge.area import Area, Room
from ksflow.stages.evaluator.judge.box import Box, Start
from ksflow.stages.evaluator.judge.card import card
from ksflow.stages.evaluator.judge.failure import Failure
from ksflow.stages.evaluator.judge.nvml import Nvml

_FLUSH = 2
"""How many times its size is written to empty the cache."""
_LOOK_S = 0.002
_QUEUE_S = 0.5
"""A call that is not queued by then waits for the device itself."""
_WORD = struct.Struct("=I")


@dataclass(frozen=True)
class Turn:
    """One turn as the judge saw it."""

    seconds: float
    """From before the inputs were written until the outputs were taken."""
    events_us: tuple[float, ...]
    """What the box says of each call."""
    gated: bool


class Device:
    """The GPU that this process judges on; `platform` as for `open_driver`."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.where = torch_device(platform)
        found = card(platform)
        self.name = found.name
        self.memory = found.memory
        self.uuid = found.uuid
        self.files, self.folders = found.files, found.folders
        self.driver: Driver = open_driver(platform)
        self._torch = torch.get_device_module(self.where)
        self._scratch = torch.empty(_FLUSH * found.cache // 8, dtype=torch.int64, device=self.where)
        self._marks = 0
        self._state = Amdgpu(self.driver.address()) if platform == "hip" else Nvml(self.uuid)

    @property
    def slot_memory(self) -> int:
        """For one box's inputs and outputs."""
        return min(4 << 30, int(self.memory // 32))

    @property
    def stock_memory(self) -> int:
        """For contents made ahead of time."""
        return min(48 << 30, int(self.memory // 3))

    def flush(self) -> None:
        """Leave nothing of use in the cache."""
        self._marks += 1
        self._scratch.fill_(self._marks)

    def finish(self) -> None:
        """Wait for this process's work."""
        self._torch.synchronize()

    def release(self) -> None:
        """Give the memory of tensors that are gone back to the device."""
        if self.platform != "emulated":
            self._torch.empty_cache()

    def state(self) -> dict[str, Any]:
        """Clocks, throttling, temperature and power, as far as they can be read."""
        return self._state.read()

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Nobody else judges on this device meanwhile, whatever process they run in."""
        name = f"\0ksflow-device-{self.uuid}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
            while True:
                try:
                    lock.bind(name)
                    break
                except OSError:
                    time.sleep(0.02)
            yield

    def probe(self) -> None:
        """Raise RuntimeError unless the device still computes: asked after a box that ended badly."""
        side = torch.arange(1024, dtype=torch.float64, device=self.where)
        found = float((side.view(32, 32) @ torch.ones(32, 32, dtype=torch.float64, device=self.where)).sum())
        if found != 32 * 1023 * 512:
            raise RuntimeError(f"the device computes wrongly after a kernel that failed: {found}")


class DeviceArea(Area):
    """Device memory for one box at a time, and the page with the gate."""

    def __init__(self, device: Device, room: Room) -> None:
        self.device = device
        self.spoiled = False
        grain = device.driver.granularity()
        sizes = [-(-size // grain) * grain for size in (room.inputs_bytes, room.outputs_bytes)]
        self.room = Room(*sizes)
        shared = [device.driver.share(size) for size in sizes]
        pairs = zip((pointer for pointer, _ in shared), sizes, strict=True)
        self.inputs, self.outputs = (device_bytes(*pair, device.where) for pair in pairs)
        gate = native.sealed_memory("gate", GATE_BYTES)
        self.gate = mmap.mmap(gate, GATE_BYTES)
        self.fds = (shared[0][1], shared[1][1], gate)
        for (pointer, fd), size in zip(shared, sizes, strict=True):
            weakref.finalize(self, _free, device.driver, pointer, size, fd)
        weakref.finalize(self, os.close, gate)

    def clear(self) -> None:
        """Forget."""
        for region in (self.inputs, self.outputs):
            region.zero_()
        self.device.finish()
        self.gate[:] = bytes(GATE_BYTES)


def _free(driver: Driver, pointer: int, size: int, fd: int) -> None:
    with contextlib.suppress(DriverError):
        driver.leave(pointer, size)
    os.close(fd)


@dataclass
class _Pending:
    """What goes into a slot once the calls are queued."""

    slot: int
    packed: torch.Tensor
    poison: int


class DeviceBox(Box):
    """A box on the device."""

    def __init__(self, start: Start, area: DeviceArea) -> None:
        super().__init__(start, area)
        self.area = area
        self.device = area.device
        self.trusted = start.device.get("mode") in ("launch", "null")
        """Whether no code of the kernel's runs on the host, so that its events can be believed."""
        self.gated = False
        """Whether calls are queued before their inputs exist."""
        self.waits = False
        """Whether the kernel waits for the device inside its calls, so that no gate can be put before them."""
        self._turn = 0
        self._pending: list[_Pending] = []
        self._taken: dict[int, torch.Tensor] = {}

    def fill(self, slot: int, packed: torch.Tensor, poison: int) -> None:
        """Have contents put into a slot, and poison into its outputs, in the turn to come."""
        self._pending.append(_Pending(slot, packed, poison))

    def taken(self, slot: int) -> torch.Tensor:
        """The outputs as they were when the turn ended."""
        return self._taken[slot]

    def forget(self) -> None:
        """Give up what was taken."""
        self._taken.clear()

    def go(self, slots: bytes, timeout_s: float) -> float:
        """One turn; see `turn`."""
        return self.turn(slots, timeout_s).seconds

    def turn(self, slots: bytes, timeout_s: float) -> Turn:
        """Have the kernel called on these slots. Raises Failure."""
        deadline = time.monotonic() + timeout_s
        try:
            return self._one(slots, deadline)
        except torch.OutOfMemoryError as error:
            raise Failure("error", "leaves too little of the device's memory for the judge") from error
        finally:
            self._pending.clear()

    # -- inside ----------------------------------------------------------------------------------

    def _one(self, slots: bytes, deadline: float) -> Turn:
        """Queued first, or told to go once the gate is open."""
        ahead = self.gated and not self.waits
        self._silent()
        self._turn += 1
        order = TURN.pack(self._turn) + slots
        nonce = self._say(GO, order) if ahead else b""
        queued = ahead and self._queued(nonce, min(deadline, time.monotonic() + _QUEUE_S))
        self._poison()
        started = time.perf_counter()
        self._write()
        self._let_go()
        if not ahead:
            nonce = self._say(GO, order)
        if not queued:
            self.waits |= ahead  # where it was told ahead, it waits for what the gate held back
            self._answer(QUEUED, nonce, deadline, spin_s=_LOOK_S)
        self._await(deadline)
        self._take(slots)
        seconds = time.perf_counter() - started
        return Turn(seconds, self._times(nonce, deadline, len(slots)), gated=queued)

    def _queued(self, nonce: bytes, until: float) -> bool:
        try:
            self._answer(QUEUED, nonce, until, spin_s=_LOOK_S)
        except Failure as failure:
            if failure.kind == "timeout":
                return False
            raise
        return True

    def _poison(self) -> None:
        for pending in self._pending:
            self.region(pending.slot, out=True).fill_(pending.poison)
            self._kept(pending.slot)
        self.device.finish()

    def _write(self) -> None:
        """By a kernel, not by a copy engine, which would work beside the box instead of in turns with it."""
        for pending in self._pending:
            region = self.region(pending.slot, out=False).view(torch.int64)
            torch.bitwise_or(pending.packed.view(torch.int64), 0, out=region)
        self.device.flush()
        self.device.finish()

    def _let_go(self) -> None:
        _WORD.pack_into(self.area.gate, 0, self._turn)

    def _await(self, deadline: float) -> None:
        """The box's word, as its stream writes it. Raises Failure."""
        look = time.perf_counter() + _LOOK_S
        while _WORD.unpack_from(self.area.gate, FLAG)[0] != self._turn:
            if time.perf_counter() > look:
                self._watch(deadline)
                look = time.perf_counter() + _LOOK_S

    def _watch(self, deadline: float) -> None:
        """Nothing but the answer may come from the box, and it must be alive. Raises Failure."""
        if time.monotonic() > deadline:
            raise Failure("timeout", "no answer in time")
        peek = socket.MSG_PEEK | socket.MSG_DONTWAIT
        with contextlib.suppress(BlockingIOError, ConnectionError):
            found = self.socket.recv(NONCE, peek)
            if not found.startswith(DONE):
                self._answer(DONE, b"", deadline, spin_s=0)
            elif time.monotonic() + _LOOK_S > deadline:
                raise Failure("timeout", "no answer in time")
        ready = dict(self._poller.poll(0))
        self.log.drain()
        if self.keeper.fileno() in ready and (word := self._heard(self._keeper_word())):
            self._judge(word, b"", b"")

    def _take(self, slots: bytes) -> None:
        for slot in slots:
            region = self.region(slot, out=True).view(torch.int64)
            torch.bitwise_or(region, 0, out=self._kept(slot).view(torch.int64))
        self.device.finish()

    def _kept(self, slot: int) -> torch.Tensor:
        """Where a slot's outputs are copied to: memory that is made before the clock starts."""
        region = self.region(slot, out=True)
        kept = self._taken.get(slot)
        if kept is None or kept.numel() != region.numel():
            kept = self._taken[slot] = torch.empty_like(region)
        return kept

    def _times(self, nonce: bytes, deadline: float, count: int) -> tuple[float, ...]:
        """What the box claims. Raises Failure for what is no claim."""
        body = self._answer(DONE, nonce, deadline, _LOOK_S)
        if len(body) != count * TIME.size:
            raise Failure("cheat", "answered what it was not asked")
        return tuple(value for (value,) in TIME.iter_unpack(body))
