"""A sandbox on a GPU: its calls wait behind gates, and the judge's own events measure how long it had the device.

docs/gpu.md has the rules; this is how they are kept. The sandbox queues a call behind a gate before its inputs exist.
Then the judge queues its side on its own stream: write the inputs, poison the outputs, restore what is changed in
place, flush the cache, open the gate; wait for the sandbox's word, get the device back, copy the outputs. No clock
includes host time. A kernel that waits for the device inside its calls gets some milliseconds to reach that point, then
the gate opens.

The sandbox's process is stopped while its call waits and runs: a host thread could compute the outputs during the
context switch, which no clock includes. Work that the call queued beside the gate still runs early. Timing cannot tell
it from a second stream that waits, which holds the device for a time slice (below).

The contexts of the two processes take turns on the device; a null kernel's call on the same contents shows how much of
the judge's time is context switching (about 0.3 ms on an H100, which varies by 2 us). Work done while the inputs
appear, or after the word, delays the judge's own work around the call, and that delay is added.

The next call is queued when the judge has the device back: a context with two waiting streams keeps the device for the
rest of its time slice, some 2 ms, and would delay the word of the previous call by as much. In this order the slice
passes before the judge begins, outside of every clock.

Work that is over only after the stream has ended hides in the context switch. So a few bytes of the outputs, at a place
that the judge draws, are copied in the stream after the call, and must be what the judge finds afterwards: in each call
of a check and of a warm-up, and in one call of each timed batch, which is not timed. A context with joined streams
keeps the device for a time slice at the beginning of a batch and after a sample; `device_backend` leaves such calls
out.

Every wait of the judge has a deadline. A sandbox that fails while the judge's stream waits for its word is killed
before the judge writes the word itself (the sandbox can write that memory while it lives), and the times that a sandbox
reports are checked against the judge's clock call by call.
"""

import contextlib
import random
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ksflow.evaluation.judge.buffers import Layout
from ksflow.evaluation.judge.device import WORD, DeviceBuffers, DeviceStuck, copy
from ksflow.evaluation.judge.failure import Failure, Overdue
from ksflow.evaluation.judge.host import SandboxSpec
from ksflow.evaluation.judge.sandboxed import Sandbox
from ksflow.evaluation.sandbox.runners.cpu import DONE, GO, NONCE
from ksflow.evaluation.sandbox.runners.device import FIRST, FLAG, NO_SAMPLE, QUEUED, SAMPLE, SAMPLE_BYTES, TIME

_LOOK_S = 0.002
_PAUSE_S = 50e-6
_QUEUE_S = 0.5  # a call not queued by then waits for the device itself
_REACH_S = 0.003  # time for such a call to reach the point where it waits
_HOST_S = 0.5  # a queued call that is not done by then, with its process stopped, may need its host
_TURN_S = 0.3e-3  # default time of a context switch, before a null call has measured it
_QUIET_S, _AT_ONCE_S = 1.0, 0.25
"""Time to wait for other work on the device; time in which a sandbox's work ends after the sandbox."""
_LATE = (
    "its outputs changed after its stream had ended: what runs on another stream has to be over before later work on "
    "the stream that the kernel is given (an event of the other stream, for which that one waits)"
)
_MARKS = 4  # the judge's events around a call: start, gate opened, device back, outputs copied
_Staged = tuple[int, torch.Tensor, int]  # a slot, its contents, and the poison for its outputs


@dataclass(frozen=True)
class DeviceCall:
    """Measurements of one call."""

    bracket_us: float  # by the judge's events: from the opening of the gate until the judge had the device back
    own_work_us: float
    """The judge's own work before and after: writing inputs, flushing the cache, copying outputs. Any other work on the
    device makes it longer."""
    reported_us: float  # the call's time by the sandbox's own events: above 0, and within the bracket
    gated: bool  # whether the call was queued before its inputs existed, and did not need its host afterwards
    turn_s: float = 0.0
    """From the opening of the gate until the sandbox's word was seen; measured on the null kernel's sandbox only."""


class DeviceSandbox(Sandbox):
    """A sandbox whose kernel runs on the device."""

    def __init__(self, start: SandboxSpec, buffers: DeviceBuffers) -> None:
        super().__init__(start, buffers)
        self.buffers = buffers
        self.device = buffers.device
        self.loaded = "torch" if start.device.get("mode", "").endswith("torch") else ""
        """Libraries loaded in its process beside the driver."""
        self.trusted = start.device.get("mode") in ("launch", "null")
        """Whether no code of the kernel runs on the host, so that its events can be trusted."""
        self.gated = False  # whether calls are queued before their inputs exist
        self._waits = False  # whether the kernel waits for the device inside its calls: no call is queued whole
        self._owed = b""  # the number of the call that is not known to be queued yet, or empty
        self._needs_host = False  # whether the kernel's queued calls end only while its process runs
        self.turn_s = _TURN_S  # seconds that its context takes to get the device once a gate is open
        self._marks = [self.device.driver.event() for _ in range(_MARKS)]
        self._numbered = 0  # number of the latest call
        self._staged: list[_Staged] = []
        self._outputs: dict[int, torch.Tensor] = {}

    def stage(self, name: str, layout: Layout, dims: list[int], slots: int) -> None:
        super().stage(name, layout, dims, slots)
        layout.restore(*(self.region(0, out=out) for out in (False, True)))  # loads its kernels: see `Device.__init__`

    def fill(self, slot: int, packed: torch.Tensor, poison: int) -> None:
        """Stage contents and poison for a slot; `run_batch` writes them."""
        self._staged.append((slot, packed, poison))

    def outputs_of(self, slot: int) -> torch.Tensor:
        """Return the outputs at the end of the batch."""
        return self._outputs[slot]

    def forget(self) -> None:
        self._outputs.clear()

    def go(self, slots: bytes, timeout_s: float) -> float:
        """Run a batch and return its seconds; see `run_batch`."""
        return sum(call.bracket_us for call in self.run_batch(slots, timeout_s, range(len(slots)))) * 1e-6

    def run_batch(self, slots: bytes, timeout_s: float, sampled: Collection[int]) -> list[DeviceCall]:
        """Call the kernel on these slots, one after another. Raises Failure.

        sampled: the positions of the calls whose outputs are sampled. The times of such a call include the sample: they
        are replaced by those of the usual other call, if there is one.
        """
        deadline = time.monotonic() + timeout_s
        try:
            with self.device.watchdog.step(timeout_s):
                self._expect_silence()
                staged = zip(slots, self._staged, strict=True)
                calls = [self._call(*row, deadline, at in sampled) for at, (_, row) in enumerate(staged)]
                others = sorted(
                    (call for at, call in enumerate(calls) if at not in sampled), key=lambda call: call.bracket_us
                )
                for at in sampled if others else ():
                    calls[at] = others[len(others) // 2]
                self.pause()
                if not self._quiet_soon():  # the next user has the device alone
                    raise self._busy()
                return calls
        except torch.OutOfMemoryError as error:
            raise Failure("error", "leaves too little of the device's memory for the judge") from error
        except DeviceStuck as error:
            self.close()
            self.device.settle()  # raises DeviceStuck if the sandbox was not the cause
            raise Failure("timeout", "prevents the judge from using the device") from error
        finally:
            self._staged = []

    def pause(self) -> None:
        """Stop the sandbox's process until its next batch, once it is the only one. Raises Failure."""
        if self.locked is not None:
            self.freeze()

    def _busy(self) -> Failure:
        """Return the failure for a busy device: the sandbox's, if no other process is seen and the work ends with
        it."""
        others = self.device.others()
        self.close()
        if not others and self._quiet_soon(_AT_ONCE_S):
            return Failure("cheat", "keeps the device busy after its calls have returned")
        who = f"process {others[0]}" if others else "another program"
        return Failure("harness", f"the device is busy: {who} uses it: end that (nvidia-smi, rocm-smi)")

    def _quiet_soon(self, patience_s: float = _QUIET_S) -> bool:
        end = time.monotonic() + patience_s
        while not (quiet := self.device.is_quiet()) and time.monotonic() < end:
            pass
        return quiet

    def _call(self, slot: int, packed: torch.Tensor, poison: int, deadline: float, sampled: bool) -> DeviceCall:
        """Make one call, on inputs that appear once it is queued. Raises Failure, DeviceStuck."""
        self._numbered += 1
        self._destination(slot)
        self.device.settle()
        place = random.randrange(0, self.region(slot, out=True).numel() - SAMPLE_BYTES + 1, 8) if sampled else NO_SAMPLE
        nonce = self._say(GO, FIRST.pack(self._numbered, place) + bytes([slot]))
        self.thaw()
        queued = self.gated and self._queued(nonce, deadline)
        gated, turn_s = queued and not self._needs_host, 0.0
        with contextlib.ExitStack() as failing:
            # a sandbox that ends while it queues must not leave the judge's stream waiting, so nothing is held before
            failing.callback(self._let_through)
            stopped = self._stop()
            self.device.hold_queue()
            self._queue(slot, packed, poison)
            self.device.start_queue()
            if stopped and not gated:
                self._until_its_turn(deadline)
            if queued and not stopped and self.device.driver.beside_host:
                turn_s = self._turning_s(deadline)
            self._owed = b"" if queued else nonce
            self._await(self._marks[-1], deadline)
            failing.pop_all()
        self.thaw()
        if self._owed:
            self._answer(QUEUED, nonce, deadline, _LOOK_S)
        report = self._answer(DONE, nonce, deadline, _LOOK_S)
        start, opened, back, copied = self._marks
        elapsed = self.device.driver.elapsed_us
        bracket_us, own_work_us = elapsed(opened, back), elapsed(start, opened) + elapsed(back, copied)
        if sampled:
            written = self._outputs[slot][place : place + SAMPLE_BYTES].cpu().numpy().tobytes()
            if self.buffers.gate[SAMPLE : SAMPLE + SAMPLE_BYTES] != written:
                raise Failure("cheat", _LATE)
        return DeviceCall(bracket_us, own_work_us, _reported_us(report, bracket_us), gated, turn_s)

    def _stop(self) -> bool:
        """Stop the process of a gated call, if the driver allows it; return whether it is stopped. Raises Failure."""
        if self.gated and self.device.driver.beside_host:
            self.pause()
        return self._frozen

    def _until_its_turn(self, deadline: float) -> None:
        """Resume a stopped process when its context has had time to switch. Raises Failure."""
        while not self.device.driver.is_reached(self._marks[1]):
            if time.monotonic() > deadline:
                raise Overdue
        end = time.perf_counter() + self.turn_s
        while time.perf_counter() < end:
            pass
        self.thaw()

    def _turning_s(self, deadline: float) -> float:
        """Return the seconds from the opening of the gate until the sandbox's word; 0 if that takes too long."""
        end = min(time.monotonic() + _HOST_S, deadline)
        while not self.device.driver.is_reached(self._marks[1]) and time.monotonic() < end:
            pass
        began = time.perf_counter()
        while not self._said() and time.monotonic() < end:
            pass
        return time.perf_counter() - began if time.monotonic() < end else 0.0

    def _said(self) -> bool:
        return bool(WORD.unpack_from(self.buffers.gate, FLAG)[0] >= self._numbered)

    def _queued(self, nonce: bytes, deadline: float) -> bool:
        """Return whether the sandbox queued the whole call in time; if not, the kernel waits for the device itself."""
        until = time.monotonic() + (_REACH_S if self._waits else _QUEUE_S)
        try:
            self._answer(QUEUED, nonce, min(until, deadline), spin_s=_LOOK_S)
        except Failure as failure:
            if failure.kind != "timeout":
                raise
            self._waits = True
            return False
        return True

    def _queue(self, slot: int, packed: torch.Tensor, poison: int) -> None:
        """Queue the judge's side of a call on its own stream: inputs, poison, cache, gate, the sandbox's word, outputs.

        Poison follows the inputs: it overwrites what a kernel writes when it sees the inputs.
        """
        driver, number = self.device.driver, self._numbered
        start, opened, back, copied = self._marks
        inputs, outputs = (self.region(slot, out=out).view(torch.int64) for out in (False, True))
        destination = self._destination(slot).view(torch.int64)
        driver.record(start)
        driver.submit(partial(copy, packed.view(torch.int64), inputs))
        driver.submit(partial(_fill, self.region(slot, out=True), poison))
        assert self.layout is not None
        driver.submit(partial(self.layout.restore, packed, self.region(slot, out=True)))
        driver.submit(self.device.flush)
        driver.record(opened)
        driver.write(self.buffers.word, number)
        driver.wait(self.buffers.word + FLAG, number)
        driver.submit(self.device.touch)
        driver.record(back)
        driver.submit(partial(copy, outputs, destination))
        driver.record(copied)

    def _let_through(self) -> None:
        """End the sandbox, which could overwrite the word, then let the judge's stream continue. Raises DeviceStuck."""
        self.close()
        self.device.start_queue()
        for word in (0, FLAG):
            WORD.pack_into(self.buffers.gate, word, self._numbered)
        self.device.settle()

    def _await(self, last: Any, deadline: float) -> None:
        """Wait until the judge's stream has passed an event. Raises Failure.

        A stopped process is resumed after a while, in case the device waits for it. A running one is stopped at its
        word.
        """
        look, host = time.perf_counter() + _LOOK_S, time.perf_counter() + _HOST_S
        while not self.device.driver.is_reached(last):
            time.sleep(_PAUSE_S)
            if self._frozen and time.perf_counter() > host and not self._said():
                self._needs_host = True
                self.thaw()
            elif not self._frozen and self._said():
                self._stop()
            if time.perf_counter() > look:
                self._watch(deadline)
                look = time.perf_counter() + _LOOK_S

    def _watch(self, deadline: float) -> None:
        """Check that the sandbox is alive and sends only answers. Raises Failure."""
        if time.monotonic() > deadline:
            raise Overdue
        peek = socket.MSG_PEEK | socket.MSG_DONTWAIT
        ready = dict(self._poller.poll(0))  # polled first: a sandbox that has ended has sent all of its messages
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = self.socket.recv(NONCE, peek)
            if self._owed and data.startswith(QUEUED):
                self._answer(QUEUED, self._owed, deadline, spin_s=0)
                self._owed = b""
            elif not data.startswith(DONE):
                self._answer(DONE, b"", deadline, spin_s=0)
            elif time.monotonic() + _LOOK_S > deadline:
                raise Overdue
        self.log.drain()
        if self.supervisor.fileno() in ready and (message := self._handle_supervisor()):
            self._checked(message, b"", b"")

    def _destination(self, slot: int) -> torch.Tensor:
        region = self.region(slot, out=True)
        destination = self._outputs.get(slot)
        if destination is None or destination.numel() != region.numel():
            destination = self._outputs[slot] = torch.empty_like(region)
        return destination


def _fill(region: torch.Tensor, byte: int) -> None:
    region.fill_(byte)


def _reported_us(report: bytes, bracket_us: float) -> float:
    """Return the call's time as the sandbox reports it. Raises Failure for an impossible value."""
    if len(report) != TIME.size:
        raise Failure("cheat", "sent an answer to no request")
    (reported_us,) = TIME.unpack(report)
    if not 0 < reported_us <= bracket_us:  # also for NaN
        raise Failure("cheat", f"reports {reported_us:.6g} µs for a call that took at most {bracket_us:.6g} µs")
    return float(reported_us)
