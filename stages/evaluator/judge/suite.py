"""Everything one judgement of a problem needs, made ahead of time: contents, oracles, secret seeds. Used once."""

import hashlib
from dataclasses import dataclass
from typing import Any

from ksflow.stages.evaluator.judge.box import Room
from ksflow.stages.evaluator.judge.cases import Entry, Layout, Reference

POOL = 4
RESERVE = 1
_LARGE = 64 << 20
_SLOT_MEMORY = 32 << 20
_MOST_SLOTS = 64


@dataclass
class Item:
    """One case with its contents."""

    case: dict[str, Any]
    dims: list[int]
    layout: Layout
    entries: list[Entry]
    reserve: list[Entry]
    """Contents that are never seen while timing: what a replay cannot know."""

    @property
    def name(self) -> str:
        return str(self.case["name"])

    @property
    def sampled(self) -> bool:
        """Whether the outputs are too large to compare every element of every call."""
        return any(want.sample is not None for entry in self.entries for want in entry.expected)

    @property
    def slots(self) -> int:
        """How many calls can be staged at once."""
        each = self.layout.input_bytes + self.layout.output_bytes
        return max(min(_SLOT_MEMORY // each, _MOST_SLOTS), 1)


@dataclass
class Suite:
    """The contents of one judgement."""

    tests: list[Item]
    benchmarks: list[Item]


class Source:
    """One problem's suites. The next one can be made piece by piece while nobody waits."""

    def __init__(self, problem: dict[str, Any]) -> None:
        self.problem = problem
        self.reference = Reference(problem)
        self._next = Suite([], [])

    def step(self) -> bool:
        """Make one more case of the next suite; whether there was one to make."""
        tests, benchmarks = self.problem["tests"], self.problem["benchmarks"]
        if len(self._next.tests) < len(tests):
            self._next.tests.append(self._test(tests[len(self._next.tests)]))
        elif len(self._next.benchmarks) < len(benchmarks):
            self._next.benchmarks.append(self._benchmark(benchmarks[len(self._next.benchmarks)]))
        else:
            return False
        return True

    def take(self) -> Suite:
        """A suite that nobody has seen."""
        while self.step():
            pass
        suite, self._next = self._next, Suite([], [])
        return suite

    def fresh(self, item: Item) -> Entry:
        """More contents for a case."""
        return self.reference.entry(item.case)[1]

    def _test(self, case: dict[str, Any]) -> Item:
        layout, public = self.reference.entry(case, case["seed"], keep=True)
        _, secret = self.reference.entry(case)
        return Item(case, self._dims(case), layout, [public, secret], [])

    def _benchmark(self, case: dict[str, Any]) -> Item:
        layout, public = self.reference.entry(case, case["seed"])
        small = layout.input_bytes + layout.output_bytes <= _LARGE
        more = [self.reference.entry(case)[1] for _ in range(POOL - 1 if small else 1)]
        reserve = [self.reference.entry(case)[1] for _ in range(RESERVE if small else 0)]
        return Item(case, self._dims(case), layout, [public, *more], reserve)

    def _dims(self, case: dict[str, Any]) -> list[int]:
        return [int(case["params"][name]) for name in self.problem["dims"]]


def room(items: list[Item], slots: int | None = None) -> Room:
    """Shared memory for the largest of these cases. `slots`: at most so many of each."""
    counts = [min(item.slots, slots or item.slots) for item in items]
    inputs = [item.layout.input_bytes * count for item, count in zip(items, counts, strict=True)]
    outputs = [item.layout.output_bytes * count for item, count in zip(items, counts, strict=True)]
    return Room(max(inputs), max(outputs))


def key(problem: dict[str, Any]) -> str:
    """Names a problem, its files' text included."""
    text = repr(sorted(problem.items()))
    with open(f"{problem['root']}/reference.py", "rb") as file:
        return hashlib.sha256(text.encode() + file.read()).hexdigest()
