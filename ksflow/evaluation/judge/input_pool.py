"""Contents made ahead of time: inputs that no sandbox has seen before, with the oracle's expected outputs.

Every call, in check and benchmark alike, gets contents drawn from its own secret seed. No sandbox gets the same
contents twice. The sandboxes of one round share contents. So do the replicates of one judgement, if nothing as large as
an answer can pass from a process that has ended to a later one (`PoolLimits.lasts`, `_UNSAID`): caches of the operating
system can pass on a few bits. Contents are dropped after a judgement, which publishes their seeds as evidence. Making
contents with their oracle takes longer than timing a fast kernel, so they are made while the judge is idle.
"""

import hashlib
import itertools
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ksflow.evaluation.judge.buffers import Buffers, BufferSizes, Layout
from ksflow.evaluation.judge.cases import Entry, Reference
from ksflow.evaluation.judge.contents import ContentKind

_FEWEST, _MOST = 2, 1024
_AHEAD = 36
_FULL_EVERY, _STRUCTURED_EVERY = 8, 16
_SAMPLED = 1 << 14
_UNSAID = 4096  # size of a case's outputs in bytes from which on one sandbox cannot pass them to another
_SHARE = 3  # each case gets this fraction (1/3) of the memory for contents if the oracle of a large one needs the rest


@dataclass(frozen=True)
class PoolLimits:
    """Limits of the memory for contents and slots, in bytes."""

    where: str = "cpu"
    contents_bytes: int = 256 << 20  # of contents, over all timed cases
    slot_bytes: int = 8 << 20  # of one sandbox's inputs and outputs
    most_slots: int = 64
    large_bytes: int = 1 << 30
    """A case with more than this in one slot is large: contents are made on demand, there is one slot, and one rival at
    a time."""
    lasts: bool = False
    """Whether contents are shared by all replicates of a judgement. Sandboxes must have no memory, files or network in
    common with earlier ones; a GPU's memory is not known to be cleared."""


class CasePool:
    """One case: its layout, and the contents at hand. For large outputs most contents are checked at a small secret
    sample of elements and one in eight at `tolerance.ALL` elements, which is all of a smaller output; a kernel
    cannot tell which. A large case has few contents, all checked at so many elements."""

    def __init__(self, reference: Reference, case: dict[str, Any], memory: int, limits: PoolLimits) -> None:
        self.case = case
        self.name = str(case["name"])
        self.dims = [int(case["params"][name]) for name in reference.problem["dims"]]
        self.timed = memory > 0
        self.entries: list[Entry] = []
        self._seen: list[Entry] = []  # the contents of the current judgement that later replicates reuse
        self.wanted = _AHEAD if self.timed else 1
        self.kinds: list[ContentKind] = []
        """The structures used on this test: all of them on the largest test that is not a large case."""
        self._count = 0
        self.shown = 0  # contents shown in the current judgement
        self.memory = memory  # bytes of contents to keep; 0 for a case that is not timed
        self.reference = reference
        self._limits = limits
        self.layout: Layout
        self._public: Entry | None = None
        if self.timed:
            first = self._make()
            self.entries += [] if self.large else [first]
        else:
            public = self._make_public()
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
        """How many contents to keep."""
        if self.large or not self.timed:
            return 0 if self.large else len(self.kinds) + 1
        used = sum(entry.nbytes for entry in self.entries)
        fit = self.memory * len(self.entries) // used if used else 1
        return max(min(self.wanted, fit, _MOST), _FEWEST)

    def public(self) -> Entry:
        """Return the contents of the case's own seed."""
        return self._public or self._make_public()

    def _make_public(self) -> Entry:
        self.layout, entry = self.reference.entry(self.case, self.case["seed"])
        entry.secret = False
        return entry

    def _make(self) -> Entry:
        sampled = self.timed and self._count and secrets.randbelow(_FULL_EVERY) and not self.large
        options = {"most": _SAMPLED} if sampled else {}
        self.layout, entry = self.reference.entry(self.case, **options, kinds=self._kinds())
        self._count += 1
        return entry

    def _kinds(self) -> Sequence[ContentKind]:
        """Return the structures for the next contents: of a test in turn, of timed calls now and then."""
        if not self.timed:
            return [(), *((kind,) for kind in self.kinds)][self._count % (len(self.kinds) + 1)]
        if not self._count or self.large or secrets.randbelow(_STRUCTURED_EVERY):
            return ()
        return [kind for kind in self.reference.kinds() if kind.timed]

    def secret_entries(self) -> list[Entry]:
        """Return secret contents of a test: drawn ones, and one of each structure used on this test."""
        return list(itertools.islice(self.feed(), len(self.kinds) + 1))

    def step(self) -> bool:
        """Make one set of contents ahead if there is room; return whether there was."""
        if self.large or len(self.entries) >= self.capacity:
            return False
        self.entries.append(self._make())
        return True

    def feed(self) -> Iterator[Entry]:
        """Yield contents for one replicate, one per round: those of earlier replicates in another order, those made
        ahead, then new ones."""
        yield from random.SystemRandom().sample(self._seen, len(self._seen))
        while True:
            self.shown += 1
            entry = self.entries.pop() if self.entries else self._make()
            answer_bytes = sum(piece.bytes for piece in self.layout.outputs)
            fits = sum(each.nbytes for each in (*self._seen, entry)) <= self.memory
            if self._limits.lasts and self.timed and answer_bytes >= _UNSAID and fits:
                self._seen.append(entry)
            yield entry

    def settle(self) -> None:
        """End a judgement: keep as many ready for the next one as it took, or half of the previous target."""
        self.wanted = max(self.shown, self.wanted // 2) if self.timed else 1
        self.shown, self._seen = 0, []


class InputPool:
    """One problem's contents: a pool for each case, and memory for sandboxes."""

    def __init__(
        self, problem: dict[str, Any], limits: PoolLimits, make_buffers: Callable[[BufferSizes], Buffers]
    ) -> None:
        self.problem = problem
        self.reference = Reference(problem, limits.where)
        memory = limits.contents_bytes // max(len(problem["benchmarks"]), 1)
        self._buffers: list[Buffers] = []
        self._make_buffers = make_buffers
        self.tests = [CasePool(self.reference, case, 0, limits) for case in problem["tests"]]
        self.benchmarks = [CasePool(self.reference, case, memory, limits) for case in problem["benchmarks"]]
        small = [pool for pool in self.tests if not pool.large]
        if small:
            max(small, key=lambda pool: pool.layout.input_bytes).kinds = self.reference.kinds()
        if self.large:
            for pool in self.benchmarks:
                pool.memory = memory // _SHARE

    def buffers(self, count: int) -> list[Buffers]:
        """Return memory for `count` sandboxes, at the same addresses each time, because addresses affect times."""
        self._buffers = [buffers for buffers in self._buffers if not buffers.spoiled]
        while len(self._buffers) < count:
            self._buffers.append(self._make_buffers(buffer_sizes(self.benchmarks)))
        return self._buffers[:count]

    @property
    def large(self) -> bool:
        """Whether memory is short for a timed case."""
        return any(case.large for case in self.benchmarks)

    def test_buffers(self) -> Buffers:
        """Return memory for the sandbox that checks the tests; if memory is short, that of the timed cases."""
        wanted = buffer_sizes(self.tests)
        shared = self.buffers(1)[0] if self.large else None
        return shared if shared and shared.fits(wanted) else self._make_buffers(wanted)

    def step(self) -> bool:
        """Make one set of contents for the case that needs it most; return whether any did."""
        cases = sorted([*self.tests, *self.benchmarks], key=lambda case: len(case.entries) / max(case.capacity, 1))
        return any(case.step() for case in cases)

    def settle(self) -> None:
        """End a judgement."""
        for case in self.benchmarks:
            case.settle()


def buffer_sizes(cases: list[CasePool]) -> BufferSizes:
    inputs = max(case.layout.input_bytes * case.slots for case in cases)
    outputs = max(case.layout.output_bytes * case.slots for case in cases)
    return BufferSizes(inputs, outputs)


def problem_key(problem: dict[str, Any]) -> str:
    """Return a digest of a problem, including the text of its reference.py."""
    text = repr(sorted(problem.items()))
    with open(f"{problem['root']}/reference.py", "rb") as file:
        return hashlib.sha256(text.encode() + file.read()).hexdigest()
