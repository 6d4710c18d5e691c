"""Contents ahead of time: inputs that a sandbox has never seen, with what the oracle expects of them.

Every call of a sandbox, in the check and in the benchmark alike, gets contents of its own, drawn from a secret seed.
Making them with their oracle is dear, so they are made while nobody waits, and shown to several sandboxes before they
retire: never twice to one sandbox, and never where a sandbox could leave word for a later one. Their seeds follow from
a salt that leaves this process only for the user's own files, so nothing that a report says helps to foresee them.
"""

import hashlib
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ksflow.judge.buffers import Buffers, BufferSizes
from ksflow.judge.cases import Entry, Layout, Reference

_FEWEST, _MOST = 2, 1024
_AHEAD = 36
_OLD, RETIRED = 8, 24
_FULL_EVERY = 8
_SAMPLED = 1 << 14
_SHARE = 3
"""Of the memory for contents each case has this part where the oracle of a large one needs the rest."""

_draw = random.SystemRandom()


@dataclass(frozen=True)
class PoolLimits:
    """How much is kept where. All in bytes."""

    where: str = "cpu"
    contents_bytes: int = 256 << 20
    """Of contents, over all timed cases."""
    slot_bytes: int = 8 << 20
    """Of one sandbox's inputs and outputs."""
    most_slots: int = 64
    large_bytes: int = 1 << 30
    """More than this in one slot is a large case: contents are made when they are asked for, there is one slot, and one
    rival at a time."""


class CasePool:
    """One case: how its tensors lie, and the contents at hand.

    Where the outputs are large, most contents are checked at a small secret sample of elements and every eighth at
    `tolerance.ALL` elements, which is the whole of smaller outputs; nobody outside can tell which. A large case sees so
    few contents that all of them are checked at so many elements.
    """

    def __init__(
        self, reference: Reference, case: dict[str, Any], memory: int, salt: str, limits: PoolLimits = PoolLimits()
    ) -> None:
        timed = memory > 0
        self.case = case
        self.name = str(case["name"])
        self.dims = [int(case["params"][name]) for name in reference.problem["dims"]]
        self.timed = timed
        self.entries: list[Entry] = []
        self.wanted = _AHEAD if timed else 1
        self.made = 0
        self.memory = memory
        """How many bytes of contents to keep at hand; 0 for a case that is not timed."""
        self._reference = reference
        self._limits = limits
        self._salt = salt
        self.layout: Layout
        self._public: Entry | None = None
        if timed:
            self.add()
        else:
            self.layout, public = reference.entry(case, case["seed"])
            self._public = None if self.large else public

    @property
    def large(self) -> bool:
        """Whether memory is short for this case."""
        return self.layout.input_bytes + self.layout.output_bytes > self._limits.large_bytes

    @property
    def slots(self) -> int:
        """How many calls can be staged at once."""
        if self.large:
            return 1
        each = self.layout.input_bytes + self.layout.output_bytes
        return max(min(self._limits.slot_bytes // each, self._limits.most_slots), 2)

    @property
    def capacity(self) -> int:
        """How many contents to keep at hand."""
        if self.large:
            return 0
        used = sum(entry.nbytes for entry in self.entries)
        fit = self.memory * len(self.entries) // used if used else 1
        return max(min(self.wanted, fit, _MOST), _FEWEST)

    def public(self) -> Entry:
        """Contents from the case's own seed."""
        return self._public or self._reference.entry(self.case, self.case["seed"])[1]

    def add(self) -> Entry:
        """Make one more, and keep it while there is room for it."""
        sampled = self.timed and self.made % _FULL_EVERY and not self.large
        more = {"most": _SAMPLED} if sampled else {}
        text = f"{self._salt}:{self.name}:{self.made}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
        self.layout, entry = self._reference.entry(self.case, seed, **more)
        entry.number = self.made
        self.made += 1
        if len(self.entries) < self.capacity:
            self.entries.append(entry)
        return entry

    def step(self) -> bool:
        """Fill up, then replace what was shown a few times; whether there was anything to do."""
        if self.large:
            return False
        if len(self.entries) < self.capacity:
            self.add()
            return True
        oldest = max(self.entries, key=lambda entry: entry.uses)
        if oldest.uses < (_OLD if self.timed else 1):
            return False
        self.entries.remove(oldest)
        self.add()
        return True

    def feed(self, uses: int) -> Iterator[Entry]:
        """Contents without end, each for one call of a sandbox: those shown less than `uses` times, then new ones."""
        self.entries = [entry for entry in self.entries if entry.uses < (uses if self.timed else 1)]
        ready = sorted(_draw.sample(self.entries, len(self.entries)), key=lambda entry: entry.uses)
        for entry in ready:
            entry.uses += 1
            yield entry
        while True:
            entry = self.add()
            entry.uses += 1
            yield entry


class InputPool:
    """One problem's contents: a pool for each of its cases, and memory for sandboxes."""

    def __init__(
        self, problem: dict[str, Any], limits: PoolLimits, make_buffers: Callable[[BufferSizes], Buffers]
    ) -> None:
        self.problem = problem
        self.reference = Reference(problem, limits.where)
        memory = limits.contents_bytes // max(len(problem["benchmarks"]), 1)
        self._buffers: list[Buffers] = []
        self._make_buffers = make_buffers
        self.salt = secrets.token_hex(16)
        self.tests = [CasePool(self.reference, case, 0, self.salt, limits) for case in problem["tests"]]
        self.benchmarks = [CasePool(self.reference, case, memory, self.salt, limits) for case in problem["benchmarks"]]
        if self.large:
            for pool in self.benchmarks:
                pool.memory = memory // _SHARE

    def buffers(self, count: int) -> list[Buffers]:
        """Memory for so many sandboxes: at the same addresses each time, because where it lies moves the times."""
        self._buffers = [one for one in self._buffers if not one.spoiled]
        while len(self._buffers) < count:
            self._buffers.append(self._make_buffers(buffer_sizes(self.benchmarks)))
        return self._buffers[:count]

    @property
    def large(self) -> bool:
        """Whether memory is short for a timed case."""
        return any(case.large for case in self.benchmarks)

    def test_buffers(self) -> Buffers:
        """Memory for the sandbox in which the tests are checked; where memory is short, what the timed cases have."""
        wanted = buffer_sizes(self.tests)
        shared = self.buffers(1)[0] if self.large else None
        return shared if shared and shared.fits(wanted) else self._make_buffers(wanted)

    @property
    def name(self) -> str:
        """Stands for the salt in evidence."""
        return hashlib.sha256(self.salt.encode()).hexdigest()[:16]

    def step(self) -> bool:
        """Make one set of contents where it is needed most; whether any is needed."""
        cases = sorted([*self.tests, *self.benchmarks], key=lambda case: len(case.entries) / max(case.capacity, 1))
        return any(case.step() for case in cases)


def buffer_sizes(cases: list[CasePool]) -> BufferSizes:
    """Memory for the largest of these cases."""
    inputs = max(case.layout.input_bytes * case.slots for case in cases)
    outputs = max(case.layout.output_bytes * case.slots for case in cases)
    return BufferSizes(inputs, outputs)


def key(problem: dict[str, Any]) -> str:
    """Names a problem, its files' text included."""
    text = repr(sorted(problem.items()))
    with open(f"{problem['root']}/reference.py", "rb") as file:
        return hashlib.sha256(text.encode() + file.read()).hexdigest()
