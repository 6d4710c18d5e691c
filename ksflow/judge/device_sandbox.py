"""A sandbox on a GPU: its calls wait behind gates, and the judge's own events say how long it had the device.

The sandbox queues a call before its inputs exist, behind the gate. Then the judge queues its side on its own stream:
write the inputs, poison the outputs, restore what is changed in place, empty the cache, open the gate; wait for the
sandbox's word, have the device again, copy the outputs. So no call finds the inputs of another one, whatever was
written to the outputs while the call was queued is gone, and no time of a host is in any clock, but for that of a
kernel that waits for the device inside its calls: it gets some milliseconds to reach the place where it waits, then the
gate opens.

The sandbox's process is stopped from when its call is queued until its outputs are copied: while the contexts turn
over, which is in no clock, a host thread could compute the outputs. The process of a kernel that needs its host during
the call goes on once its context has had time to turn over, as a null call shows, and stops again with its word. What
the call put on the device beside the gate still runs while it is queued: work in memory of the kernel's own, such as
clearing a workspace, can be done there in no clock. Timing cannot tell it from a second stream that waits, which holds
the device for a time slice (below).

The two processes' contexts have the device by turns. The judge's own events say how long the sandbox had it, from the
opening of a gate until the judge has it again; a null kernel's call on the same contents says how much of that is the
turning over (about 0.3 ms on an H100, which moves by 2 us). Work done while the inputs appear, or after the word, makes
the judge's own work around the call longer, and is added. What a sandbox's events say of a call counts as far as it
agrees. Every call is cold: cache, address translation and instructions.

The next call is queued when the judge has the device back, not before: a context of which two streams wait keeps the
device for the rest of its time slice, some 2 ms, and the judge would find the word of the call before it only then.
As it is, that slice passes before the judge begins, where it is in no clock.

Nothing of the judge's waits without an end: for what it reads there are deadlines, a sandbox that fails while the
judge's stream waits for its word is killed before the judge lets itself through (the word is memory that the sandbox
can write as long as it lives), and what it says of its times is data, held against the judge's clock call by call.
"""

import contextlib
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ksflow.judge.device import WORD, DeviceBuffers, DeviceStuck, copy
from ksflow.judge.failure import Failure
from ksflow.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.sandbox.runners.cpu import DONE, GO, NONCE
from ksflow.sandbox.runners.device import FIRST, FLAG, QUEUED, TIME

_LOOK_S = 0.002
_PAUSE_S = 50e-6
_QUEUE_S = 0.5
"""A call that is not queued by then waits for the device itself."""
_REACH_S = 0.003
"""How long it then takes a call to get where it waits."""
_HOST_S = 0.5
"""A queued call that is not done by then, while its process is stopped, may need its host."""
_TURN_S = 0.3e-3
"""How long a context takes to have the device, where no null call has told."""
_QUIET_S, _AT_ONCE_S = 1.0, 0.25
"""How long other work on the device is waited for, and how soon it ends with the sandbox that had put it there."""
_MARKS = 4
"""The judge's events around one call: start, gate opened, device back, outputs copied."""
_Staged = tuple[int, torch.Tensor, int]
"""A slot, what goes into it once the call is queued, and the poison for its outputs."""


@dataclass(frozen=True)
class DeviceCall:
    """What was found of one call."""

    bracket_us: float
    """By the judge's own events: from the opening of the gate until the judge had the device again."""
    own_work_us: float
    """The judge's own work before and after that: writing the inputs, emptying the cache, copying the outputs. Whatever
    anybody else does on the device meanwhile makes it longer."""
    reported_us: float
    """What the sandbox says that the call took, by its own events: more than nothing, and within the bracket."""
    gated: bool
    """Whether the call was queued before its inputs existed, and needed nothing of its host after that."""
    turn_s: float = 0.0
    """From the opening of the gate until the sandbox's word was seen, of a sandbox that is never stopped."""


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
        self._waits = False
        """Whether the kernel waits for the device inside its calls, so that they are never queued whole."""
        self._owed = b""
        """The number of the order that is not known to be queued yet; none where it is."""
        self._needs_host = False
        """Whether the kernel's queued calls end only while its process runs."""
        self.turn_s = _TURN_S
        """How long its context takes to have the device once a gate is open."""
        self._marks = [self.device.driver.event() for _ in range(_MARKS)]
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
        return sum(call.bracket_us for call in self.run_batch(slots, timeout_s)) * 1e-6

    def run_batch(self, slots: bytes, timeout_s: float) -> list[DeviceCall]:
        """Have the kernel called on these slots, one after another. Raises Failure, DeviceStuck."""
        deadline = time.monotonic() + timeout_s
        try:
            with self.device.watchdog.step(timeout_s):
                self._expect_silence()
                calls = [self._call(*staged, deadline) for _, staged in zip(slots, self._staged, strict=True)]
                self.rest()
                if not self._quiet_soon():  # whoever comes next has the device alone
                    raise self._busy()
                return calls
        except torch.OutOfMemoryError as error:
            raise Failure("error", "leaves too little of the device's memory for the judge") from error
        except DeviceStuck as error:
            self.close()
            self.device.settle()  # it was not the sandbox, where even this is not done
            raise Failure("timeout", "keeps the judge from the device") from error
        finally:
            self._staged = []

    def rest(self) -> None:
        """Stop the sandbox's process until its next batch, once it is the only one. Raises Failure."""
        if self.locked is not None:
            self.freeze()

    # -- inside ----------------------------------------------------------------------------------

    def _busy(self) -> Failure:
        """Who keeps the device at work: the sandbox, where nobody else is seen there and the work ends with it."""
        others = self.device.others()
        self.close()
        if not others and self._quiet_soon(_AT_ONCE_S):
            return Failure("cheat", "keeps the device at work after its calls have ended")
        who = f"process {others[0]}" if others else "another program"
        return Failure("harness", f"the device is busy: {who} is at work on it: end it (nvidia-smi, rocm-smi)")

    def _quiet_soon(self, patience_s: float = _QUIET_S) -> bool:
        end = time.monotonic() + patience_s
        while not (quiet := self.device.quiet()) and time.monotonic() < end:
            pass
        return quiet

    def _call(self, slot: int, packed: torch.Tensor, poison: int, deadline: float) -> DeviceCall:
        """One call, on inputs that appear once it is queued. Raises Failure, DeviceStuck."""
        self._numbered += 1
        self._destination(slot)
        self.device.settle()
        nonce = self._say(GO, FIRST.pack(self._numbered) + bytes([slot]))
        self.thaw()
        queued = self.gated and self._queued(nonce, deadline)
        gated, turn_s = queued and not self._needs_host, 0.0
        with contextlib.ExitStack() as failing:
            # nothing is held before: a sandbox that ends while it queues must not leave the judge's stream waiting
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
        return DeviceCall(bracket_us, own_work_us, _reported_us(report, bracket_us), gated, turn_s)

    def _stop(self) -> bool:
        """Stop the sandbox's process in a timed call, where it can be stopped; whether it was. Raises Failure."""
        if self.gated and self.device.driver.beside_host:
            self.rest()
        return self._frozen

    def _until_its_turn(self, deadline: float) -> None:
        """Let a stopped process go on when its context has had time to turn over. Raises Failure."""
        while not self.device.driver.reached(self._marks[1]):
            if time.monotonic() > deadline:
                raise Failure("timeout", "no answer in time")
        end = time.perf_counter() + self.turn_s
        while time.perf_counter() < end:
            pass
        self.thaw()

    def _turning_s(self, deadline: float) -> float:
        """From when the gate is seen to be open until the sandbox's word is seen; 0 where that takes too long."""
        end = min(time.monotonic() + _HOST_S, deadline)
        while not self.device.driver.reached(self._marks[1]) and time.monotonic() < end:
            pass
        began = time.perf_counter()
        while not self._said() and time.monotonic() < end:
            pass
        return time.perf_counter() - began if time.monotonic() < end else 0.0

    def _said(self) -> bool:
        """Whether the sandbox's word for the latest call is there."""
        return bool(WORD.unpack_from(self.buffers.gate, FLAG)[0] >= self._numbered)

    def _queued(self, nonce: bytes, deadline: float) -> bool:
        """Whether the sandbox has soon put the whole call on its stream: else it waits for what the gate holds back."""
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
        """Put the judge's side of a call on its own stream: inputs, poison, cache, gate, the sandbox's word, outputs.
        Poison comes last: what a kernel writes when it sees the inputs is gone before the gate opens."""
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
        """End the sandbox, which could take the word back, then let the judge's stream past it. Raises DeviceStuck."""
        self.close()
        self.device.start_queue()
        for word in (0, FLAG):
            WORD.pack_into(self.buffers.gate, word, self._numbered)
        self.device.settle()

    def _await(self, last: Any, deadline: float) -> None:
        """Until the judge's stream has passed an event; no clock runs on this side meanwhile. Raises Failure.

        A stopped process goes on after a while, in case the device waits for it. One that runs stops with its word.
        """
        look, host = time.perf_counter() + _LOOK_S, time.perf_counter() + _HOST_S
        while not self.device.driver.reached(last):
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
        """Nothing but the answers may come from the sandbox, and it must be alive. Raises Failure."""
        if time.monotonic() > deadline:
            raise Failure("timeout", "no answer in time")
        peek = socket.MSG_PEEK | socket.MSG_DONTWAIT
        ready = dict(self._poller.poll(0))  # whoever has ended has said before all that it said
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = self.socket.recv(NONCE, peek)
            if self._owed and data.startswith(QUEUED):
                self._answer(QUEUED, self._owed, deadline, spin_s=0)
                self._owed = b""
            elif not data.startswith(DONE):
                self._answer(DONE, b"", deadline, spin_s=0)
            elif time.monotonic() + _LOOK_S > deadline:
                raise Failure("timeout", "no answer in time")
        self.log.drain()
        if self.supervisor.fileno() in ready and (message := self._handle_supervisor()):
            self._checked(message, b"", b"")

    def _destination(self, slot: int) -> torch.Tensor:
        """Where a slot's outputs are copied to: memory that is made before the clock starts."""
        region = self.region(slot, out=True)
        destination = self._outputs.get(slot)
        if destination is None or destination.numel() != region.numel():
            destination = self._outputs[slot] = torch.empty_like(region)
        return destination


def _fill(region: torch.Tensor, byte: int) -> None:
    region.fill_(byte)


def _reported_us(report: bytes, bracket_us: float) -> float:
    """What a sandbox says that its call took. Raises Failure where no honest one can say that."""
    if len(report) != TIME.size:
        raise Failure("cheat", "answered what it was not asked")
    (reported_us,) = TIME.unpack(report)
    if not 0 < reported_us <= bracket_us:  # also where it is not a number
        raise Failure("cheat", f"says that a call took {reported_us:.6g} µs, which had {bracket_us:.6g} µs at most")
    return float(reported_us)
