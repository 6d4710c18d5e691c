"""Is it right? Calls a sandbox and looks at what it left: inputs, outputs, outputs of earlier calls."""

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ksflow.judge.cases import Entry, Piece, Reference, bare
from ksflow.judge.input_pool import CasePool
from ksflow.judge.problem_check import CheckBroke
from ksflow.judge.sandboxed import Sandbox
from ksflow.judge.tolerance import Expected, errors, filled, first_error, number, plain, same_bytes, worst

_NOTHING = 0xFF
"""NaN in every float type, -1 in every signed integer: half of the calls have it where it is no right answer."""
_FIRST_POISON = 2
"""0 and 1 are truth values."""
_LOOKED_AT = 1 << 16
"""So many elements, drawn anew, tell which bytes are rare where none is impossible."""
_SHOWN = 4096
"""Elements of an output that is shown as evidence, at most."""
_TELLING = 4
"""Bytes of an element that are not by chance what the memory was filled with."""

_draw = random.SystemRandom()


class Rejected(Exception):
    """The kernel is not accepted."""

    def __init__(self, verdict: str, reason: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.evidence = evidence or {}


class WaitBudget:
    """How long a sandbox may still be waited for. The judge's own work and other sandboxes take nothing of it."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    @contextlib.contextmanager
    def waiting(self) -> Iterator[float]:
        """Gives what is left, and takes from it what passes meanwhile."""
        started = time.monotonic()
        try:
            yield max(self.left_s, 0.0)
        finally:
            self.left_s -= time.monotonic() - started


class Caller:
    """One sandbox on one case: fill, go, look. The same for every call, whatever it is for.

    Each call's outputs are poisoned first, copied the moment the sandbox is done, and compared once more when the slot
    is used again, with the inputs: an answer that changes after it was given is none. What lies around the outputs has
    to keep the poison, and slots that no call has had yet what was put there. So wherever a call writes but into its
    outputs is seen, as far as it is memory that the judge has given: on a CPU and on a GPU alike.
    """

    def __init__(self, sandbox: Sandbox, case: CasePool, reference: Reference) -> None:
        self.sandbox = sandbox
        self.case = case
        self.reference = reference
        self.worst = 0.0
        self._next = 0
        self._held: dict[int, tuple[Entry, torch.Tensor]] = {}
        sandbox.stage(case.name, case.layout, case.dims, case.slots)
        self._gaps = case.layout.gaps().to(sandbox.outputs.device)
        self._poison: dict[int, int] = {}
        self._unused = set(range(1, case.slots))
        self._blank = _draw.randrange(2, 0xFF)
        """What is in slots that no call has had yet. The first one is used at once."""
        for slot in self._unused:
            for out in (False, True):
                sandbox.region(slot, out).fill_(self._blank)

    def fill(self, entries: list[Entry]) -> bytes:
        """Put contents into the next slots. Raises Rejected."""
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
        """Copy the outputs, then look at them. Raises Rejected."""
        for slot, entry in zip(slots, entries, strict=True):
            self._held[slot] = entry, self.sandbox.outputs_of(slot)
        for slot, entry in zip(slots, entries, strict=True):
            self._inspect(slot, entry)

    def close(self) -> None:
        """Look at the outputs that are still held, and at the slots that were not used. Raises Rejected."""
        for slot in [*self._held, *self._unused]:
            self._compare_again(slot)

    def share_of_bound(self) -> float:
        """The largest error of the latest two calls so far, as a share of their bounds."""
        for entry, region in list(self._held.values())[-2:]:
            for piece, want in zip(self.case.layout.outputs, entry.expected, strict=False):
                self.worst = max(self.worst, worst(want, piece.view(region)))
        return self.worst

    def upstream(self) -> str:
        """What the foreign rule, which never decides, says of the latest output: "" when it passes."""
        assert self.reference.upstream is not None
        entry, region = next(reversed(self._held.values()))
        try:
            return self.reference.upstream(self.case.layout.data(entry.packed), bare(self._outputs(region)))
        except CheckBroke as error:
            return str(error)

    def shown(self) -> list[list[float | str]]:
        """The latest outputs, value by value; nothing for one that is too large to show."""
        _, region = next(reversed(self._held.values()))
        small = (out if out.numel() <= _SHOWN else out.flatten()[:0] for out in self._outputs(region))
        return [[number(value) for value in plain(out).flatten().double().tolist()] for out in small]

    def errors(self) -> list[list[float | str]]:
        """Of each latest output the largest absolute and the largest relative error beside the reference's."""
        entry, region = next(reversed(self._held.values()))
        answer = self.reference.kernel(self.case.layout.data(entry.packed))
        exact = answer if isinstance(answer, tuple | list) else (answer,)
        pairs = zip(exact, self._outputs(region), strict=True)
        return [[number(value) for value in errors(theirs, mine)] for theirs, mine in pairs]

    # -- inside ----------------------------------------------------------------------------------

    def _compare_again(self, slot: int) -> None:
        """Let go of a slot, if all in it is still as it was. Raises Rejected."""
        if slot in self._unused:
            self._unused.remove(slot)
            if not all(filled(self.sandbox.region(slot, out), self._blank) for out in (False, True)):
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
            raise self._wrong(f"wrote {self.case.layout.where(int(self._gaps[astray][0]))}", entry)
        outputs = self._outputs(region)
        for index, (output, want) in enumerate(zip(outputs, entry.expected, strict=False)):
            if detail := first_error(want, output):
                looks = _looks(want, output, self._before(index, entry, slot))
                raise self._wrong(f"{_sentence(detail)}{looks}", entry, output=index, **detail)
        if self.reference.property_check is None:
            return
        if objection := self.reference.objection(self.case.layout.data(entry.packed), outputs):
            raise self._wrong(objection, entry)

    def _before(self, index: int, entry: Entry, slot: int) -> torch.Tensor:
        """What an output held before the call, byte by byte; one byte for all that was filled with it."""
        if piece := self.case.layout.sources.get(index):
            return piece.elements(entry.packed)
        return torch.tensor(self._poison[slot], dtype=torch.uint8, device=entry.packed.device)

    def _outputs(self, region: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(piece.view(region) for piece in self.case.layout.outputs)

    def _wrong(self, why: str, entry: Entry | None = None, **more: Any) -> Rejected:
        failed = {"failed": {"case": self.case.name, "seed": entry.seed, **more}} if entry else {}
        where = f"{self.case.name} with {entry.structure}" if entry and entry.structure else self.case.name
        return Rejected("reject-incorrect", f"{where}: {why}", failed)


def poisons(wanted: Sequence[Expected], outputs: Sequence[Piece]) -> tuple[int, ...]:
    """The bytes with which outputs may be filled before a call, so that an element which is not written is wrong.

    Where every byte may be right somewhere: the bytes that are right for the fewest elements.
    """
    pairs = [(want, _filled_with_each_byte(piece, want)) for want, piece in zip(wanted, outputs, strict=False)]
    right = sum((_may_be(want, values) for want, values in pairs), torch.zeros(256))
    if bool(right[_FIRST_POISON:].all()):
        right = sum((_right_share(want, values) for want, values in pairs), torch.zeros(256, dtype=torch.float64))
    least = right[_FIRST_POISON:].min()
    return tuple(byte for byte in range(_FIRST_POISON, 256) if right[byte] == least)


def _filled_with_each_byte(piece: Piece, want: Expected) -> torch.Tensor:
    """What an element (a part of it, where it is complex) reads that is filled with 0, with 1, ... with 255."""
    memory = torch.arange(256, dtype=torch.uint8, device=want.low.device).repeat_interleave(piece.dtype.itemsize)
    return plain(memory.view(piece.dtype)).reshape(256, -1)[:, 0].to(want.low.dtype)


def _may_be(want: Expected, values: torch.Tensor) -> torch.Tensor:
    """1 for each value that lies between the least and the greatest that is right anywhere, else 0."""
    finite = ~want.low.isnan()
    if not bool(finite.any()):
        return values.isnan().float().cpu()
    within = (values >= want.low[finite].min()) & (values <= want.high[finite].max())
    return (within | (values.isnan() & want.special)).float().cpu()


def _right_share(want: Expected, values: torch.Tensor) -> torch.Tensor:
    """The share of the elements for which each value is right, by a secret sample."""
    if not want.low.numel():
        return torch.zeros(256, dtype=torch.float64)
    generator = torch.Generator().manual_seed(_draw.getrandbits(63))
    places = torch.randint(want.low.numel(), (_LOOKED_AT,), generator=generator).to(want.low.device)
    low, high, none = want.low[places], want.high[places], want.value[places].isnan()
    below = torch.searchsorted(low[~none].sort().values, values, right=True)
    right = below - torch.searchsorted(high[~none].sort().values, values)
    return torch.where(values.isnan(), none.sum(), right).double().cpu() / _LOOKED_AT


def check(  # noqa: PLR0913 - what is checked, with what, for how long
    sandbox: Sandbox,
    case: CasePool,
    reference: Reference,
    entries: list[Entry],
    budget: WaitBudget,
    show: bool = False,
    measure: bool = False,
    patient: bool = True,
) -> dict[str, Any]:
    """One case on these contents, a call each: what is known of its errors. Raises Rejected, Failure.

    show: tell the latest outputs too, those that are small. measure: tell their errors beside the reference's.
    patient: wait for all of the budget; else a call that takes far longer than the reference is given up.
    """
    caller = Caller(sandbox, case, reference)
    upstream = ""
    for entry in entries:
        slots = caller.fill([entry])
        with budget.waiting() as left_s:
            if patient:
                sandbox.go(slots, left_s)
            else:
                sandbox.go_within_reason(slots, left_s, partial(_reference_s, caller, entry))
        caller.take(slots, [entry])
        if reference.upstream is not None and not upstream:
            upstream = caller.upstream()
    share = number(round(caller.share_of_bound(), 4))
    row: dict[str, Any] = {"case": case.name, "seeds": [entry.seed for entry in entries], "worst": share}
    row |= {"outputs": caller.shown()} if show else {}
    row |= {"errors": caller.errors()} if measure else {}
    caller.close()
    return {**row, "upstream": upstream or "pass"} if reference.upstream is not None else row


def _reference_s(caller: Caller, entry: Entry) -> float:
    """What CPU time the reference takes on the same inputs, now and here."""
    data = caller.case.layout.data(entry.packed.clone())
    started = time.process_time()
    caller.reference.kernel(data)
    return max(time.process_time() - started, 1e-6)


def _looks(want: Expected, output: torch.Tensor, before: torch.Tensor) -> str:
    """What a wrong output looks like, for who wrote the kernel: parts that are as they were, or another layout."""
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


def _sentence(detail: dict[str, Any]) -> str:
    values = (detail[name] for name in ("got", "expected", "bound"))
    got, want, bound = (value if isinstance(value, str) else f"{value:.6g}" for value in values)
    where = f"first at {detail['index']}: got {got}, expected {want} within {bound}"
    return f"{detail['bad']} of {detail['of']} elements are off, {where}"
