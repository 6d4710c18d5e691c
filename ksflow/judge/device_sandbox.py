"""A sandbox on a GPU: its calls wait behind gates, and the judge's own events say how long it had the device.

A batch has several calls, queued by the sandbox before any of their inputs exist, each behind a gate of its own. The
judge has queued its side of every call on its own stream: write the inputs, empty the cache, open the gate; wait for
the sandbox's word, have the device again, copy the outputs; then the inputs of the next call. So no call finds the
inputs of another one, and no time of a host is in any clock.

The two processes' contexts have the device by turns. The judge's own events say how long the sandbox had it, from the
opening of a gate until the judge has it again; a null kernel's call on the same contents says how much of that is the
turning over (about 0.3 ms on an H200, which moves by 2 us). Work done while the inputs appear, or after the word, makes
the judge's own work around the call longer, and is added. What a sandbox's events say of a call counts as far as it
agrees. All this costs a third of a millisecond a call, and every call is cold: cache, address translation and
instructions.
"""

import contextlib
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ksflow.judge.device import WORD, DeviceBuffers, copy
from ksflow.judge.failure import Failure
from ksflow.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.sandbox.runners.cpu import DONE, GO, NONCE
from ksflow.sandbox.runners.device import FIRST, FLAG, QUEUED, TIME

_LOOK_S = 0.002
_PAUSE_S = 50e-6
_QUEUE_S = 0.5
"""A call that is not queued by then waits for the device itself."""
_QUIET_S = 1.0
_MARKS = 4
"""The judge's events around one call: start, gate opened, device back, outputs copied."""
_Staged = tuple[int, torch.Tensor, int]
"""A slot, what goes into it once the calls are queued, and the poison for its outputs."""


@dataclass(frozen=True)
class Batch:
    """What was found of each call of one batch, in the order of the calls."""

    brackets_us: tuple[float, ...]
    """By the judge's own events: from the opening of the gate until the judge had the device again."""
    around_us: tuple[float, ...]
    """The judge's own work before and after that: writing the inputs, emptying the cache, copying the outputs. Whatever
    anybody else does on the device meanwhile makes it longer."""
    events_us: tuple[float, ...]
    """What the sandbox says that the call took."""
    gated: bool
    """Whether the calls were queued before any of their inputs existed."""


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
        self._staged: list[_Staged] = []
        self._outputs: dict[int, torch.Tensor] = {}

    def fill(self, slot: int, packed: torch.Tensor, poison: int) -> None:
        """Have contents put into a slot, and poison into its outputs, in the batch to come."""
        self._staged.append((slot, packed, poison))

    def outputs_of(self, slot: int) -> torch.Tensor:
        """The outputs as they were when the batch ended."""
        return self._outputs[slot]

    def forget(self) -> None:
        """Give up the copies of outputs."""
        self._outputs.clear()

    def go(self, slots: bytes, timeout_s: float) -> float:
        """One batch's seconds; see `run_batch`."""
        return sum(self.run_batch(slots, timeout_s).brackets_us) * 1e-6

    def run_batch(self, slots: bytes, timeout_s: float) -> Batch:
        """Have the kernel called on these slots. Raises Failure."""
        deadline = time.monotonic() + timeout_s
        try:
            self._expect_silence()
            if self.gated and not self.waits:
                batch = self._run(slots, self._staged, deadline, ahead=True)
            else:
                pairs = zip(slots, self._staged, strict=True)
                single = [self._run(bytes([slot]), [staged], deadline, ahead=False) for slot, staged in pairs]
                rows = ((*one.brackets_us, *one.around_us, *one.events_us) for one in single)
                brackets, around, events = zip(*rows, strict=True)
                batch = Batch(brackets, around, events, gated=False)
            self.rest()
            if not self._quiet_soon():  # whoever comes next has the device alone
                self.close()
                if self._quiet_soon():
                    raise Failure("cheat", "keeps the device at work after its calls have ended")
                raise Failure("harness", "another program is at work on this device: end it (nvidia-smi, rocm-smi)")
            return batch
        except torch.OutOfMemoryError as error:
            raise Failure("error", "leaves too little of the device's memory for the judge") from error
        finally:
            self._staged = []

    def rest(self) -> None:
        """Stop the sandbox's process until its next batch, once it is the only one. Raises Failure."""
        if self.locked is not None:
            self.freeze()

    # -- inside ----------------------------------------------------------------------------------

    def _quiet_soon(self) -> bool:
        end = time.monotonic() + _QUIET_S
        while not (quiet := self.device.quiet()) and time.monotonic() < end:
            pass
        return quiet

    def _run(self, slots: bytes, staged: list[_Staged], deadline: float, ahead: bool) -> Batch:
        """Calls one after another, each on inputs that appear once the call before it is over.

        ahead: wait until the sandbox has queued them all before the first inputs appear.
        """
        first = self._numbered + 1
        self._numbered += len(slots)
        driver = self.device.driver
        for slot, _, poison in staged:
            self.region(slot, out=True).fill_(poison)
            self._kept(slot)
        driver.synchronize()
        nonce = self._say(GO, FIRST.pack(first) + slots)
        self.thaw()
        queued = ahead and self._queued(nonce, min(deadline, time.monotonic() + _QUEUE_S))
        try:  # nothing is held before: a sandbox that ends while it queues must not leave the judge's stream waiting
            self.device.hold_queue(_MARKS * len(staged))
            marks = [self._queue(*pair) for pair in enumerate(staged, first)]
            self.device.start_queue()
            if not queued:
                self.waits |= ahead  # told ahead, it waits for what the gate holds back
                self._answer(QUEUED, nonce, deadline, spin_s=_LOOK_S)
            self._await(marks[-1][-1], deadline)
        except BaseException:
            self._let_all_through()
            raise
        driver.synchronize()
        claims = self._answer(DONE, nonce, deadline, _LOOK_S)
        if len(claims) != len(slots) * TIME.size:
            raise Failure("cheat", "answered what it was not asked")
        elapsed = driver.elapsed_us
        brackets = tuple(elapsed(opened, back) for _, opened, back, _ in marks)
        around = tuple(elapsed(start, opened) + elapsed(back, copied) for start, opened, back, copied in marks)
        return Batch(brackets, around, tuple(value for (value,) in TIME.iter_unpack(claims)), gated=queued)

    def _queued(self, nonce: bytes, until: float) -> bool:
        try:
            self._answer(QUEUED, nonce, until, spin_s=_LOOK_S)
        except Failure as failure:
            if failure.kind == "timeout":
                return False
            raise
        return True

    def _queue(self, number: int, staged: _Staged) -> list[Any]:
        """Put the judge's side of a call on its own stream: inputs, cache, gate, the sandbox's word, outputs."""
        driver = self.device.driver
        slot, packed, _ = staged
        start, opened, back, copied = marks = self.device.events(_MARKS)
        inputs, outputs = (self.region(slot, out=out).view(torch.int64) for out in (False, True))
        kept = self._kept(slot).view(torch.int64)
        driver.record(start)
        driver.submit(partial(copy, packed.view(torch.int64), inputs))
        driver.submit(self.device.flush)
        driver.record(opened)
        driver.write(self.buffers.word, number)
        driver.wait(self.buffers.word + FLAG, number)
        driver.submit(self.device.touch)
        driver.record(back)
        driver.submit(partial(copy, outputs, kept))
        driver.record(copied)
        return marks

    def _let_all_through(self) -> None:
        """Nothing of the judge's may wait for a sandbox that is done with."""
        self.device.start_queue()
        for word in (0, FLAG):
            WORD.pack_into(self.buffers.gate, word, self._numbered)
        self.device.driver.synchronize()

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
        if self.supervisor.fileno() in ready and (message := self._handle_supervisor()):
            self._checked(message, b"", b"")

    def _kept(self, slot: int) -> torch.Tensor:
        """Where a slot's outputs are copied to: memory that is made before the clock starts."""
        region = self.region(slot, out=True)
        kept = self._outputs.get(slot)
        if kept is None or kept.numel() != region.numel():
            kept = self._outputs[slot] = torch.empty_like(region)
        return kept
