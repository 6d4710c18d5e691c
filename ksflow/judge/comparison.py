"""Kernels against each other over every timed case, in replicates: fresh processes, warm-up, one process each,
benchmarks.

Where memory lies moves a time by several per cent, and a process keeps its place for life. So in every replicate each
kernel runs in a new process, and they change places: each has been where each other was.
"""

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ksflow.judge import figures
from ksflow.judge.buffers import Buffers
from ksflow.judge.check import Rejected
from ksflow.judge.failure import Failure
from ksflow.judge.figures import CaseResult, CaseResults
from ksflow.judge.input_pool import InputPool
from ksflow.judge.sandboxed import Sandbox
from ksflow.judge.timing import Backend, Replicate, TimedKernel

Json = dict[str, Any]
Opener = Callable[[Json, Buffers], Sandbox]

_MOST_REPLICATES = 3
_BEHIND = 0.8
"""A kernel that is surely slower than this needs no second replicate."""
_SLOW_REPLICATE_S = 3.0
"""Nor one that takes so long to start and to run that placement is the smallest of its troubles."""


@dataclass
class Outcome:
    """What came of it."""

    cases: list[CaseResults]
    rows: list[Json] = field(default_factory=list)
    """Per case, of the first kernel."""
    ratios: dict[str, Json] = field(default_factory=dict)
    """Of the first kernel to each other one."""
    skipped: dict[str, str] = field(default_factory=dict)
    locked: bool = True

    def with_more(self, more: "Outcome", name: str) -> "Outcome":
        """This and another comparison of the same kernels, their replicates together."""
        both = self._joined(more, name)
        found = {other: both.ratio(name, other) for other in self.ratios.keys() & more.ratios.keys()}
        both.ratios = {other: row for other, row in found.items() if row}
        return both

    def beside(self, more: "Outcome", name: str) -> "Outcome":
        """This and a comparison of the same kernel with others."""
        both = self._joined(more, name)
        both.ratios = self.ratios | more.ratios
        both.skipped = self.skipped | more.skipped
        both.locked = self.locked and more.locked
        return both

    def _joined(self, more: "Outcome", name: str) -> "Outcome":
        pairs = zip(self.cases, more.cases, strict=True)
        both = Outcome([CaseResults(own.case, own.results + other.results) for own, other in pairs])
        both.rows = [results.row(name) for results in both.cases]
        return both

    def doubt(self, *names: str) -> str:
        """Why the times of some kernels rank nothing; empty where they do."""
        return next((doubt for results in self.cases for name in names if (doubt := results.doubt(name))), "")

    def ratio(self, first: str, other: str) -> Json | None:
        """Of any two."""
        return figures.ratio(self.cases, first, other)


class PairedComparison:
    """The first kernel's failures are raised; the others are skipped where they fail. `at` is told of every case."""

    def __init__(self, pool: InputPool, backend: Backend, kernels: dict[str, Json], at: Callable[[str], None]) -> None:
        self.pool = pool
        self.backend = backend
        self.kernels = kernels
        self.at = at
        self.first = next(iter(kernels))
        self.replicates = min(len(kernels), _MOST_REPLICATES)
        self.outcome = Outcome([CaseResults(case.case) for case in pool.benchmarks])
        self._limits: Json = pool.problem["limits"]

    def run(self, own: Callable[[Buffers], AbstractContextManager[Sandbox]], opener: Opener, uses: int) -> Outcome:
        """CaseBenchmark on every case in every replicate. Raises Rejected, Failure of the first kernel."""
        if self.pool.large:
            self.backend.release()
        buffers = self.pool.buffers(len(self.kernels))
        for replicate in range(self.replicates):
            started = time.monotonic()
            with contextlib.ExitStack() as stack:
                others = {
                    name: stack.enter_context(opener(self.kernels[name], buffers[(place + replicate) % len(buffers)]))
                    for place, name in enumerate(self.kernels)
                    if place and name not in self.outcome.skipped
                }  # they start while the first one does
                sandboxes = {self.first: stack.enter_context(own(buffers[replicate % len(buffers)]))}
                for name, sandbox in others.items():
                    self._admit(sandboxes, name, sandbox)
                self._run_replicate(sandboxes, Replicate(replicate, self.replicates), uses)
            found = {name: self.outcome.ratio(self.first, name) for name in list(self.kernels)[1:]}
            self.outcome.ratios = {name: row for name, row in found.items() if row and name not in self.outcome.skipped}
            if self._settled(time.monotonic() - started):
                break
        self._conclude()
        return self.outcome

    def _admit(self, sandboxes: dict[str, Sandbox], name: str, sandbox: Sandbox) -> None:
        try:
            sandbox.ready(self._limits["check_s"])
            sandboxes[name] = sandbox
        except Failure as failure:
            sandbox.close()
            self.outcome.skipped[name] = failure.text

    def _run_replicate(self, sandboxes: dict[str, Sandbox], replicate: Replicate, uses: int) -> None:
        limit_s, reference = self._limits["time_s"], self.pool.reference
        kernels = [self.backend.timed_kernel(name, sandbox, reference, limit_s) for name, sandbox in sandboxes.items()]
        benchmarks = [
            self.backend.benchmark(case, kernels, case.feed(uses), replicate) for case in self.pool.benchmarks
        ]
        for benchmark in benchmarks:
            self.at(benchmark.case.name)
            benchmark.warm_up()
            self.outcome.skipped |= benchmark.dropped
        self._lock(kernels)
        for benchmark, results in zip(benchmarks, self.outcome.cases, strict=True):
            self.at(benchmark.case.name)
            benchmark.run()
            self.outcome.skipped |= benchmark.dropped
            results.results.append(CaseResult.of(benchmark))

    def _lock(self, kernels: list[TimedKernel]) -> None:
        for kernel in list(kernels):
            try:
                self.outcome.locked &= kernel.sandbox.alone()
            except Failure as failure:
                if kernel is kernels[0]:
                    raise
                kernels.remove(kernel)
                kernel.sandbox.close()
                self.outcome.skipped[kernel.name] = failure.text

    def _conclude(self) -> None:
        """The times. Raises Rejected for one that cannot be."""
        outcome = self.outcome
        outcome.rows = [results.row(self.first) for results in outcome.cases]
        for row in outcome.rows:
            if row["impossible"]:
                most, least = f"{row['at_most_us']:g} µs at most", f"{row['floor_us']:.3g} µs here: "
                reason = f"{row['case']}: {most}, but it takes at least {least}"
                raise Rejected("reject-impossible", reason + row["floor"], {"timed": outcome.rows})

    def _settled(self, replicate_s: float) -> bool:
        if not self.outcome.ratios or replicate_s > _SLOW_REPLICATE_S:
            return True
        return bool(next(iter(self.outcome.ratios.values()))["high"] < _BEHIND)
