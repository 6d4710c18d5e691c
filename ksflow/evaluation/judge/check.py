"""Checks of a call: inputs unchanged, outputs right, outputs of earlier calls unchanged."""

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ksflow.evaluation.judge.buffers import Piece, Tensors
from ksflow.evaluation.judge.cases import Entry, unwrap_single
from ksflow.evaluation.judge.elements import errors, is_filled, number, same_bytes, to_comparable
from ksflow.evaluation.judge.input_pool import CasePool
from ksflow.evaluation.judge.problem_check import CheckBroke
from ksflow.evaluation.judge.sandboxed import Sandbox
from ksflow.evaluation.judge.tolerance import Expected, first_error, worst_error

_NOTHING = 0xFF
"""NaN in every float type, -1 in every signed integer: half of the calls use it, unless -1 or NaN may be right."""
_FIRST_POISON = 2  # 0 and 1 are valid booleans
_LOOKED_AT = 1 << 16  # sample size for finding the rarest byte where every byte may be right
_SHOWN = 4096  # largest output that is kept as evidence, in elements
_TELLING = 4  # element size in bytes from which on an element equal to the poison was not written

_draw = random.SystemRandom()


class Rejected(Exception):
    """The kernel is not accepted."""

    def __init__(self, verdict: str, reason: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.evidence = evidence or {}


class WaitBudget:
    """Time limit of all waits for a sandbox; the judge's own work does not count."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    @contextlib.contextmanager
    def charge_wait(self) -> Iterator[float]:
        """Yield the seconds left, and subtract the time spent in the block."""
        started = time.monotonic()
        try:
            yield max(self.left_s, 0.0)
        finally:
            self.left_s -= time.monotonic() - started


class Caller:
    """One sandbox on one case: fill slots, call, check. The same for tests and benchmarks.

    Outputs are poisoned before each call, copied as soon as the sandbox is done, and compared again with the inputs
    when the slot is reused: an output that changes after its call is an error. The bytes around the outputs must keep
    the poison, and unused slots their fill. So a write outside of a call's outputs is detected in all memory of the
    judge, on a CPU and on a GPU.
    """

    def __init__(self, sandbox: Sandbox, case: CasePool) -> None:
        self.sandbox = sandbox
        self.case = case
        self.reference = case.reference
        self.worst = 0.0
        self._next = 0
        self._held: dict[int, tuple[Entry, torch.Tensor]] = {}
        sandbox.stage(case.name, case.layout, case.dims, case.slots)
        self._gaps = case.layout.gaps().to(sandbox.outputs.device)
        self._poison: dict[int, int] = {}
        self._unused = set(range(1, case.slots))
        self._blank = _draw.randrange(2, 0xFF)
        """The fill of slots that no call has used yet; the first slot is used at once."""
        for slot in self._unused:
            for out in (False, True):
                sandbox.region(slot, out).fill_(self._blank)

    def fill(self, entries: list[Entry]) -> bytes:
        """Write contents into the next slots and return these. Raises Rejected."""
        if any(entry.secret for entry in entries):
            self.sandbox.seal()
        slots = bytes((self._next + step) % self.case.slots for step in range(len(entries)))
        self._next = (self._next + len(entries)) % self.case.slots
        for slot, entry in zip(slots, entries, strict=True):
            self._compare_again(slot)
            entry.poisons = entry.poisons or poisons(*self.case.layout.filled(entry.expected))
            first = _NOTHING if _NOTHING in entry.poisons else _draw.choice(entry.poisons)
            self._poison[slot] = _draw.choice((first, _draw.choice(entry.poisons)))
            self.sandbox.fill(slot, entry.packed, self._poison[slot])
        return slots

    def take(self, slots: bytes, entries: list[Entry]) -> None:
        """Copy the outputs, then check them. Raises Rejected."""
        for slot, entry in zip(slots, entries, strict=True):
            self._held[slot] = entry, self.sandbox.outputs_of(slot)
        for slot, entry in zip(slots, entries, strict=True):
            self._inspect(slot, entry)

    def close(self) -> None:
        """Compare the outputs still held and the unused slots. Raises Rejected."""
        for slot in [*self._held, *self._unused]:
            self._compare_again(slot)

    def share_of_bound(self) -> float:
        """Return the largest error so far of the latest two calls, as a share of their bounds."""
        for entry, region in list(self._held.values())[-2:]:
            for piece, want in zip(self.case.layout.outputs, entry.expected, strict=False):
                self.worst = max(self.worst, worst_error(want, piece.view(region)))
        return self.worst

    def upstream(self) -> str:
        """Return why `upstream_check`, which never decides, rejects the latest output, "" if it accepts."""
        assert self.reference.upstream is not None
        data, outputs = self._latest()
        try:
            return self.reference.upstream(data, unwrap_single(outputs))
        except CheckBroke as error:
            return str(error)

    def shown_outputs(self) -> list[list[float | str]]:
        """Return the latest outputs as lists of values; an empty list for a large one."""
        small = (out if out.numel() <= _SHOWN else out.flatten()[:0] for out in self._latest()[1])
        return [[number(value) for value in to_comparable(out).flatten().double().tolist()] for out in small]

    def errors(self) -> list[list[float | str]]:
        """Return the largest absolute and relative error of each latest output, compared with the reference."""
        data, outputs = self._latest()
        pairs = zip(self.reference.answer(data), outputs, strict=True)
        return [[number(value) for value in errors(theirs, mine)] for theirs, mine in pairs]

    def _latest(self) -> tuple[Tensors, Tensors]:
        entry, region = next(reversed(self._held.values()))
        return self.case.layout.data(entry.packed), self._outputs(region)

    def _compare_again(self, slot: int) -> None:
        if slot in self._unused:
            self._unused.remove(slot)
            if not all(is_filled(self.sandbox.region(slot, out), self._blank) for out in (False, True)):
                raise self._wrong("wrote into the memory of other calls")
        if slot not in self._held:
            return
        entry, region = self._held.pop(slot)
        if not same_bytes(self.sandbox.region(slot, out=False), entry.packed):
            raise self._wrong("wrote into the inputs of another call", entry)
        if not same_bytes(self.sandbox.region(slot, out=True), region):
            raise self._wrong("an output changed after the call had returned", entry)

    def _inspect(self, slot: int, entry: Entry) -> None:
        if not same_bytes(self.sandbox.region(slot, out=False), entry.packed):
            raise self._wrong("wrote into its inputs", entry)
        region = self._held[slot][1]
        astray = region.index_select(0, self._gaps) != self._poison[slot]
        if bool(astray.any()):
            raise self._wrong(f"wrote {self.case.layout.describe_place(int(self._gaps[astray][0]))}", entry)
        outputs = self._outputs(region)
        for index, (output, want) in enumerate(zip(outputs, entry.expected, strict=False)):
            if detail := first_error(want, output):
                looks = _looks(want, output, self._before(index, entry, slot))
                values = (detail[name] for name in ("got", "expected", "bound"))
                got, right, bound = (value if isinstance(value, str) else f"{value:.6g}" for value in values)
                off = f"{detail['bad']} of {detail['of']} elements are off"
                first = f"first at {detail['index']}: got {got}, expected {right} within {bound}"
                raise self._wrong(f"{off}, {first}{looks}", entry, output=index, **detail)
        if self.reference.property_check is None:
            return
        if objection := self.reference.objection(self.case.layout.data(entry.packed), outputs):
            raise self._wrong(objection, entry)

    def _before(self, index: int, entry: Entry, slot: int) -> torch.Tensor:
        """Return the bytes that an output held before the call; one byte for an output that was poisoned."""
        if piece := self.case.layout.sources.get(index):
            return piece.elements(entry.packed)
        return torch.tensor(self._poison[slot], dtype=torch.uint8, device=entry.packed.device)

    def _outputs(self, region: torch.Tensor) -> Tensors:
        return tuple(piece.view(region) for piece in self.case.layout.outputs)

    def _wrong(self, why: str, entry: Entry | None = None, **more: Any) -> Rejected:
        failed = {"failed": {"case": self.case.name, "seed": entry.seed, **more}} if entry else {}
        where = f"{self.case.name} with {entry.structure}" if entry and entry.structure else self.case.name
        return Rejected("reject-incorrect", f"{where}: {why}", failed)


def poisons(wanted: Sequence[Expected], outputs: Sequence[Piece]) -> tuple[int, ...]:
    """Return the byte values to fill outputs with, so that an element which is not written is wrong. If every byte
    may be right somewhere: the bytes that are right for the fewest elements."""
    pairs = []
    for want, piece in zip(wanted, outputs, strict=False):  # each byte's element (of one part, if complex)
        memory = torch.arange(256, dtype=torch.uint8, device=want.low.device).repeat_interleave(piece.dtype.itemsize)
        pairs.append((want, to_comparable(memory.view(piece.dtype)).reshape(256, -1)[:, 0].to(want.low.dtype)))
    right = sum((_may_be(want, values) for want, values in pairs), torch.zeros(256))
    if bool(right[_FIRST_POISON:].all()):
        right = sum((_right_share(want, values) for want, values in pairs), torch.zeros(256, dtype=torch.float64))
    least = right[_FIRST_POISON:].min()
    return tuple(byte for byte in range(_FIRST_POISON, 256) if right[byte] == least)


def _may_be(want: Expected, values: torch.Tensor) -> torch.Tensor:
    finite = ~want.low.isnan()
    if not bool(finite.any()):
        return values.isnan().float().cpu()
    within = (values >= want.low[finite].min()) & (values <= want.high[finite].max())
    return (within | (values.isnan() & want.special)).float().cpu()


def _right_share(want: Expected, values: torch.Tensor) -> torch.Tensor:
    """Return the share of elements for which each value is right, by a secret sample."""
    if not want.low.numel():
        return torch.zeros(256, dtype=torch.float64)
    generator = torch.Generator().manual_seed(_draw.getrandbits(63))
    places = torch.randint(want.low.numel(), (_LOOKED_AT,), generator=generator).to(want.low.device)
    low, high, none = want.low[places], want.high[places], want.value[places].isnan()
    below = torch.searchsorted(low[~none].sort().values, values, right=True)
    right = below - torch.searchsorted(high[~none].sort().values, values)
    return torch.where(values.isnan(), none.sum(), right).double().cpu() / _LOOKED_AT


def check(
    sandbox: Sandbox, case: CasePool, entries: list[Entry], budget: WaitBudget, show: bool, patient: bool
) -> dict[str, Any]:
    """Check one case on these contents, one call each, and return its row of evidence. Raises Rejected, Failure.

    show: include small outputs, and errors compared with the reference. patient: wait for all of the budget; else a
    call that takes far longer than the reference is given up.
    """
    caller, reference, upstream = Caller(sandbox, case), case.reference, ""
    for entry in entries:
        slots = caller.fill([entry])
        with budget.charge_wait() as left_s:
            if patient:
                sandbox.go(slots, left_s)
            else:
                sandbox.go_within_reason(slots, left_s, partial(_reference_s, caller, entry))
        caller.take(slots, [entry])
        if reference.upstream is not None and not upstream:
            upstream = caller.upstream()
    share = number(round(caller.share_of_bound(), 4))
    row: dict[str, Any] = {"case": case.name, "seeds": [entry.seed for entry in entries], "worst": share}
    row |= {"outputs": caller.shown_outputs(), "errors": caller.errors()} if show else {}
    caller.close()
    return {**row, "upstream": upstream or "pass"} if reference.upstream is not None else row


def _reference_s(caller: Caller, entry: Entry) -> float:
    data = caller.case.layout.data(entry.packed.clone())
    started = time.process_time()
    caller.reference.kernel(data)
    return max(time.process_time() - started, 1e-6)


def _looks(want: Expected, output: torch.Tensor, before: torch.Tensor) -> str:
    """Return a hint for the kernel's author: elements as they were before the call, or rows and columns exchanged."""
    if output.element_size() >= _TELLING:
        words = output.contiguous().view(-1).view(torch.uint8).view(*output.shape, output.element_size())
        if unwritten := int((words == before).all(-1).sum()):
            how = "never written" if not before.dim() else "left as they were before the call"
            return f"; {unwritten} of {output.numel()} were {how}"
    if output.dim() < 2 or 1 in output.shape[-2:]:
        return ""
    *outer, rows, columns = output.shape
    exchanged = output.reshape(*outer, columns, rows).mT, output.mT.reshape(*outer, rows, columns)
    right = any(not first_error(want, other) for other in exchanged)
    return "; they are right with rows and columns exchanged: in memory, they lie as `strides` says" if right else ""
