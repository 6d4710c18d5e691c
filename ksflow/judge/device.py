"""One GPU, from the judge's side: its own context, memory for sandboxes, sandboxes behind gates, the device's state.

A turn has several calls, queued by the sandbox before any of their inputs exist, each behind a gate of its own. The
judge has queued its side of every call on its own stream: write the inputs, empty the cache, open the gate; wait for
the sandbox's word, have the device again, copy the outputs; then the inputs of the next call. So no call finds the
inputs of another one, and no time of a host is in any clock.

The two processes' contexts have the device by turns. The judge's own events say how long the sandbox had it, from the
opening of a gate until the judge has it again; a null kernel's call on the same contents says how much of that is the
turning over (about 0.3 ms on an H200, which moves by 2 us). Work done while the inputs appear, or after the word, makes
the judge's own work around the call longer, and is added. What a sandbox's events say of a call counts as far as it
agrees.

It costs a third of a millisecond a call, and every call is cold: cache, address translation and instructions.
"""

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import time
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch

from ksflow.judge.amdgpu import Amdgpu
from ksflow.judge.buffers import Buffers, BufferSizes
from ksflow.judge.failure import Failure
from ksflow.judge.nvml import Nvml
from ksflow.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.judge.visible import gpu_properties
from ksflow.processes.device_lock import lock_device
from ksflow.sandbox import linux
from ksflow.sandbox.driver import Driver, DriverError, open_driver, torch_device
from ksflow.sandbox.runners.cpu import DONE, GO, NONCE
from ksflow.sandbox.runners.device import FIRST, FLAG, GATE_BYTES, QUEUED, TIME
from ksflow.sandbox.runners.torch_kernel import device_bytes

_FLUSH = 2
"""How many times its size is written to empty the cache."""
_LOOK_S = 0.002
_PAUSE_S = 50e-6
_QUEUE_S = 0.5
"""A call that is not queued by then waits for the device itself."""
_ALONE = 9
"""How often the cache is emptied to learn how long that takes while nobody else is on the device."""
_BUSY, _BUSY_US = 2.0, 200.0
"""So many times as long, and so much more, says that somebody is: contexts take turns of a millisecond or more."""
_QUIET_S = 1.0
_WORD = struct.Struct("=I")


@dataclass(frozen=True)
class Batch:
    """One turn: what was found of each of its calls, in the order of the calls."""

    brackets_us: tuple[float, ...]
    """By the judge's own events: from the opening of the gate until the judge had the device again."""
    around_us: tuple[float, ...]
    """The judge's own work before and after that: writing the inputs, emptying the cache, copying the outputs. Whatever
    anybody else does on the device meanwhile makes it longer."""
    events_us: tuple[float, ...]
    """What the sandbox says that the call took."""
    gated: bool
    """Whether the calls were queued before any of their inputs existed."""

    @classmethod
    def of(cls, parts: "Sequence[Batch]") -> "Batch":
        """One turn of several whose calls were told one at a time."""
        brackets, around, events = (
            tuple(chain.from_iterable(getattr(part, name) for part in parts))
            for name in ("brackets_us", "around_us", "events_us")
        )
        return cls(brackets, around, events, gated=False)


class Device:
    """The GPU that this process judges on; `platform` as for `open_driver`."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.where = torch_device(platform)
        found = gpu_properties(platform)
        self.name = found.name
        self.memory = found.memory
        self.uuid = found.uuid
        self.files, self.folders = found.files, found.folders
        self.driver: Driver = open_driver(platform)
        self._torch = torch.get_device_module(self.where)
        self._scratch = torch.empty(_FLUSH * found.cache // 8, dtype=torch.int64, device=self.where)
        self._small = torch.zeros(64, dtype=torch.int64, device=self.where)
        self._marks = 0
        self._events: list[Any] = []
        self._used = 0
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._word = self.driver.map_host(ctypes.addressof(ctypes.c_char.from_buffer(self._page)), mmap.PAGESIZE)
        self._queues = 0
        self._load()
        self._own = self.driver.event(), self.driver.event()
        self._alone_us = min(self._flush_us() for _ in range(_ALONE))
        self._state = Amdgpu(self.driver.address()) if platform == "hip" else Nvml(self.uuid)

    def _load(self) -> None:
        """Have the code of the judge's own kernels on the device: loading it may wait for a stream that is held."""
        copy(self._small, self._small.clone())
        self._small.view(torch.uint8).fill_(1)
        self.flush()
        self.touch()
        self.finish()

    @property
    def slot_memory(self) -> int:
        """For one sandbox's inputs and outputs."""
        return min(4 << 30, int(self.memory // 32))

    @property
    def contents_memory(self) -> int:
        """For contents made ahead of time."""
        return min(48 << 30, int(self.memory // 3))

    def flush(self) -> None:
        """Leave nothing of use in the cache."""
        self._marks += 1
        self._scratch.fill_(self._marks)

    def touch(self) -> None:
        """The least that makes the device turn to this process: no event after it is early."""
        self._small.add_(1)

    def finish(self) -> None:
        """Wait for this process's work."""
        self.driver.synchronize()

    def hold_queue(self, events: int) -> None:
        """What follows on the stream waits for `start_queue`, so that no gap between two of its parts is the host's.

        events: how many of them `events` may give out meanwhile.
        """
        self._events += [self.driver.event() for _ in range(events - len(self._events))]
        self._used = 0
        self._queues += 1
        self.driver.wait(self._word, self._queues)

    def start_queue(self) -> None:
        """Let the stream go on."""
        _WORD.pack_into(self._page, 0, self._queues)

    def events(self, count: int) -> list[Any]:
        """Events that nobody else has had since the queue was last held."""
        self._used += count
        return self._events[self._used - count : self._used]

    def release(self) -> None:
        """Give the memory of tensors that are gone back to the device."""
        if self.platform != "emulated":
            self._torch.empty_cache()

    def free(self) -> int:
        """Bytes of the device's memory that nobody has."""
        return 0 if self.platform == "emulated" else int(self._torch.mem_get_info()[0])

    def state(self) -> dict[str, Any]:
        """Clocks, throttling, temperature and power, as far as they can be read."""
        return self._state.read()

    def lease(self) -> AbstractContextManager[None]:
        """Nobody else works on this device meanwhile, in whatever process. Raises DeviceBusy after a while."""
        return lock_device(self.uuid)

    def quiet(self) -> bool:
        """Whether nobody but this process works on the device: its own work takes as long as it does alone."""
        return self._flush_us() < self._alone_us * _BUSY + _BUSY_US

    def _flush_us(self) -> float:
        """How long emptying the cache takes now."""
        before, after = self._own
        self.driver.record(before)
        self.driver.submit(self.flush)
        self.driver.record(after)
        self.finish()
        return self.driver.elapsed_us(before, after)

    def probe(self) -> None:
        """Raise RuntimeError unless the device still computes: asked after a sandbox that ended badly."""
        side = torch.arange(1024, dtype=torch.float64, device=self.where)
        found = float((side.view(32, 32) @ torch.ones(32, 32, dtype=torch.float64, device=self.where)).sum())
        if found != 32 * 1023 * 512:
            raise RuntimeError(f"the device computes wrongly after a kernel that failed: {found}")


class DeviceBuffers(Buffers):
    """Device memory for one sandbox at a time, and the page with the gate."""

    def __init__(self, device: Device, sizes: BufferSizes) -> None:
        self.device = device
        self.spoiled = False
        grain = device.driver.granularity()
        whole = [-(-size // grain) * grain for size in (sizes.inputs_bytes, sizes.outputs_bytes)]
        self.sizes = BufferSizes(*whole)
        shared = [device.driver.share_memory(size) for size in whole]
        pairs = zip((pointer for pointer, _ in shared), whole, strict=True)
        self.inputs, self.outputs = (device_bytes(*pair, device.where) for pair in pairs)
        self.shared = shared[0][1], shared[1][1]
        for (pointer, fd), size in zip(shared, whole, strict=True):
            weakref.finalize(self, _free, device.driver, pointer, size, fd)
        self._gate = _GatePage(device.driver)

    def clear(self) -> None:
        """Forget. The page is a new one for every sandbox: attributes of a file would outlast what is written in it."""
        for region in (self.inputs, self.outputs):
            region.zero_()
        self.device.finish()
        self._gate.close()
        self._gate = _GatePage(self.device.driver)
        self.gate, self.word = self._gate.page, self._gate.word
        self.fds = (*self.shared, self._gate.fd)


class _GatePage:
    """The page with the words of the judge and of one sandbox, as both and the device see it."""

    def __init__(self, driver: Driver) -> None:
        self.fd = linux.sealed_memory("gate", GATE_BYTES)
        self.page = mmap.mmap(self.fd, GATE_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.word = driver.map_host(address, GATE_BYTES)
        self.close = weakref.finalize(self, _hide, driver, address, self.fd)


def _hide(driver: Driver, address: int, fd: int) -> None:
    with contextlib.suppress(DriverError):
        driver.unmap_host(address)
    os.close(fd)


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """By a kernel, not by a copy engine, which would work beside a sandbox instead of in turns with it."""
    torch.bitwise_or(source, 0, out=target)


def _free(driver: Driver, pointer: int, size: int, fd: int) -> None:
    with contextlib.suppress(DriverError):
        driver.unmap_shared(pointer, size)
    os.close(fd)


@dataclass
class _Pending:
    """What goes into a slot once the calls are queued."""

    slot: int
    packed: torch.Tensor
    poison: int


_MARKS = 4


@dataclass(frozen=True)
class _Marks:
    """The judge's own events around one call."""

    start: Any
    opened: Any
    back: Any
    """The judge has the device again."""
    taken: Any


class DeviceSandbox(Sandbox):
    """A sandbox on the device."""

    def __init__(self, start: SandboxSpec, buffers: DeviceBuffers) -> None:
        super().__init__(start, buffers)
        self.buffers = buffers
        self.device = buffers.device
        self.loaded = "torch" if start.device.get("mode", "").endswith("torch") else ""
        """What its process has loaded beside the driver."""
        self.trusted = start.device.get("mode") in ("launch", "null")
        """Whether no code of the kernel's runs on the host, so that its events can be believed."""
        self.gated = False
        """Whether calls are queued before their inputs exist."""
        self.waits = False
        """Whether the kernel waits for the device inside its calls, so that no gate can be put before them."""
        self._numbered = 0
        """The number of the latest call that the sandbox was told of."""
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
        """One turn's seconds; see `run_batch`."""
        return sum(self.run_batch(slots, timeout_s).brackets_us) * 1e-6

    def run_batch(self, slots: bytes, timeout_s: float) -> Batch:
        """Have the kernel called on these slots. Raises Failure."""
        deadline = time.monotonic() + timeout_s
        try:
            self._silent()
            if self.gated and not self.waits:
                batch = self._run(slots, self._pending, deadline, ahead=True)
            else:
                pairs = zip(slots, self._pending, strict=True)
                alone = [self._run(bytes([slot]), [pending], deadline, ahead=False) for slot, pending in pairs]
                batch = Batch.of(alone)
            self.rest()
            self._leave_device()
            return batch
        except torch.OutOfMemoryError as error:
            raise Failure("error", "leaves too little of the device's memory for the judge") from error
        finally:
            self._pending = []

    def rest(self) -> None:
        """Stop the sandbox's process until its next batch, once it is the only one. Raises Failure."""
        if self.locked is not None:
            self.freeze()

    # -- inside ----------------------------------------------------------------------------------

    def _leave_device(self) -> None:
        """Whoever comes next has the device alone. Raises Failure for a sandbox that keeps it at work."""
        if self._quiet_soon():
            return
        self.close()
        if self._quiet_soon():
            raise Failure("cheat", "keeps the device at work after its calls have ended")
        raise Failure("harness", "another program is at work on this device: end it (nvidia-smi, rocm-smi)")

    def _quiet_soon(self) -> bool:
        end = time.monotonic() + _QUIET_S
        while not (quiet := self.device.quiet()) and time.monotonic() < end:
            pass
        return quiet

    def _run(self, slots: bytes, pending: list[_Pending], deadline: float, ahead: bool) -> Batch:
        """Calls one after another, each on inputs that appear once the call before it is over.

        ahead: wait until the sandbox has queued them all before the first inputs appear.
        """
        first = self._numbered + 1
        self._numbered += len(slots)
        self._poison(pending)
        nonce = self._say(GO, FIRST.pack(first) + slots)
        self.thaw()
        queued = ahead and self._queued(nonce, min(deadline, time.monotonic() + _QUEUE_S))
        try:  # nothing is held before: a sandbox that ends while it queues must not leave the judge's stream waiting
            self.device.hold_queue(_MARKS * len(pending))
            marks = [self._queue(*pair) for pair in enumerate(pending, first)]
            self.device.start_queue()
            if not queued:
                self.waits |= ahead  # told ahead, it waits for what the gate holds back
                self._answer(QUEUED, nonce, deadline, spin_s=_LOOK_S)
            self._await(marks[-1].taken, deadline)
        except BaseException:
            self._let_all_through()
            raise
        self.device.finish()
        claims = self._times(nonce, deadline, len(slots))
        elapsed = self.device.driver.elapsed_us
        brackets = tuple(elapsed(mark.opened, mark.back) for mark in marks)
        around = tuple(elapsed(mark.start, mark.opened) + elapsed(mark.back, mark.taken) for mark in marks)
        return Batch(brackets, around, claims, gated=queued)

    def _queued(self, nonce: bytes, until: float) -> bool:
        try:
            self._answer(QUEUED, nonce, until, spin_s=_LOOK_S)
        except Failure as failure:
            if failure.kind == "timeout":
                return False
            raise
        return True

    def _poison(self, pending: list[_Pending]) -> None:
        for one in pending:
            self.region(one.slot, out=True).fill_(one.poison)
            self._kept(one.slot)
        self.device.finish()

    def _queue(self, number: int, pending: _Pending) -> _Marks:
        """Put the judge's side of a call on its own stream: inputs, cache, gate, the sandbox's word, outputs."""
        driver = self.device.driver
        marks = _Marks(*self.device.events(_MARKS))
        inputs, outputs = (self.region(pending.slot, out=out).view(torch.int64) for out in (False, True))
        kept = self._kept(pending.slot).view(torch.int64)
        driver.record(marks.start)
        driver.submit(partial(copy, pending.packed.view(torch.int64), inputs))
        driver.submit(self.device.flush)
        driver.record(marks.opened)
        driver.write(self.buffers.word, number)
        driver.wait(self.buffers.word + FLAG, number)
        driver.submit(self.device.touch)
        driver.record(marks.back)
        driver.submit(partial(copy, outputs, kept))
        driver.record(marks.taken)
        return marks

    def _let_all_through(self) -> None:
        """Nothing of the judge's may wait for a sandbox that is done with."""
        self.device.start_queue()
        for word in (0, FLAG):
            _WORD.pack_into(self.buffers.gate, word, self._numbered)
        self.device.finish()

    def _await(self, last: Any, deadline: float) -> None:
        """Until the judge's stream has passed an event; no clock runs on this side meanwhile. Raises Failure."""
        look = time.perf_counter() + _LOOK_S
        while not self.device.driver.reached(last):
            time.sleep(_PAUSE_S)
            if time.perf_counter() > look:
                self._watch(deadline)
                look = time.perf_counter() + _LOOK_S

    def _watch(self, deadline: float) -> None:
        """Nothing but the answer may come from the sandbox, and it must be alive. Raises Failure."""
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
        if self.supervisor.fileno() in ready and (word := self._heard(self._supervisor_message())):
            self._judge(word, b"", b"")

    def _kept(self, slot: int) -> torch.Tensor:
        """Where a slot's outputs are copied to: memory that is made before the clock starts."""
        region = self.region(slot, out=True)
        kept = self._taken.get(slot)
        if kept is None or kept.numel() != region.numel():
            kept = self._taken[slot] = torch.empty_like(region)
        return kept

    def _times(self, nonce: bytes, deadline: float, count: int) -> tuple[float, ...]:
        """What the sandbox claims. Raises Failure for what is no claim."""
        body = self._answer(DONE, nonce, deadline, _LOOK_S)
        if len(body) != count * TIME.size:
            raise Failure("cheat", "answered what it was not asked")
        return tuple(value for (value,) in TIME.iter_unpack(body))
