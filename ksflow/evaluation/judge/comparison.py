"""Paired comparison of kernels over every timed case, in replicates: fresh processes, warm-up, timing.

Memory addresses change a time by several per cent, and a process keeps its addresses. So in every replicate each kernel
runs in a new process, and the kernels rotate: each gets every memory place, and each is started first, last and in
between.

After each number of replicates in `_LOOKS` the comparison may end (`Reading.clear`). These are up to nine looks at
nominal 95 % each; their joint error rate is simulated (`benchmarks/judge.py --simulate`, docs/trust.md).
"""

import contextlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ksflow.evaluation.judge.buffers import Buffers
from ksflow.evaluation.judge.check import Rejected
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.input_pool import InputPool
from ksflow.evaluation.judge.outcome import CaseResults, Outcome
from ksflow.evaluation.judge.sandboxed import Sandbox
from ksflow.evaluation.judge.timing import Backend, CaseBenchmark, Replicate, TimedKernel
from ksflow.records.base import Json

Own = Callable[[Buffers], AbstractContextManager[Sandbox]]
Opener = Callable[[Json, Buffers], Sandbox]
_FEWEST, _FEWEST_TOGETHER = 2, 1
"""Least replicates beside other kernels, of which a single one cannot show the spread; the second value applies where
starting a kernel takes seconds."""
_LOOKS = frozenset((1, 2, 3, 4, 6, 9, 13, 18, 24))
"""Numbers of replicates after which a comparison may end: stopping after any would find differences by chance."""
_FEWEST_TO_RANK, _PATIENT = 4, 3
"""Until there are so many replicates, kernels that cannot be ranked may take so many times the time."""
_PLACES = 3  # replicates in which each of three kernels has had every memory place
_FAR_BEHIND = math.log(0.7)
"""A kernel surely slower than this in one replicate is slower in all: memory addresses change a time by less."""


@dataclass(frozen=True)
class Effort:
    """Limits of a comparison: replicates and seconds. The first `fewest` replicates may take three times as long."""

    most: int = 9
    spent_s: float = 20.0
    fewest: int = 1
    control: tuple[str, str] | None = None  # a kernel and its copy, whose difference is part of the interval


class PairedComparison:
    """Times kernels. The first kernel's failures are raised; others that fail are skipped. `at` is called with each
    case's name."""

    def __init__(
        self,
        pool: InputPool,
        backend: Backend,
        kernels: dict[str, Json],
        at: Callable[[str], None],
        effort: Effort = Effort(),
    ) -> None:
        self.pool = pool
        self.backend = backend
        self.kernels = kernels
        self.at = at
        self.effort = effort
        self.first = next(iter(kernels))
        self.outcome = Outcome([CaseResults(case.case) for case in pool.benchmarks], spread=backend.spread)
        self._limits: Json = pool.problem["limits"]

    def run(self, own: Own, opener: Opener) -> Outcome:
        """Time every case in every replicate. Raises Rejected, Failure of the first kernel. own: opens the first
        kernel's sandbox; opener: another one's."""
        if self.pool.large:
            self.backend.release()
        started = time.monotonic()
        for number in range(self.effort.most):
            with contextlib.ExitStack() as stack:
                self._run_replicate(stack, own, opener, Replicate(number, min(len(self.kernels), _PLACES)))
            if self._settled(number + 1, time.monotonic() - started):
                break
        gains = {name: self.outcome.ratio(self.first, name) for name in list(self.kernels)[1:]}
        self.outcome.ratios = {name: row for name, row in gains.items() if row and name not in self.outcome.skipped}
        rows = self.outcome.rows = [results.row(self.first) for results in self.outcome.cases]
        for row in rows:
            if row["impossible"]:
                least = f"it takes at least {row['floor_us']:.3g} µs here: {row['floor']}"
                reason = f"{row['case']}: {row['at_most_us']:g} µs at most, but {least}"
                raise Rejected("reject-impossible", reason, {"timed": rows})
        return self.outcome

    def _run_replicate(self, stack: contextlib.ExitStack, own: Own, opener: Opener, replicate: Replicate) -> None:
        """Run one replicate. The kernels start one after another, each frozen before the next one starts, so that
        none disturbs the others; on a device, where a start takes seconds, all start together. The order changes
        with every replicate, so that a kernel cannot tell its place by how long it is frozen; but if a sandbox
        cannot be limited to one process, all others start before the first kernel."""
        buffers = self.pool.buffers(len(self.kernels))
        kernels: list[TimedKernel] = []
        benchmarks = [self.backend.benchmark(self.backend, case, kernels, replicate) for case in self.pool.benchmarks]

        def opened(place: int, name: str) -> Sandbox:
            lies = buffers[(place + replicate.number) % len(buffers)]
            return stack.enter_context(opener(self.kernels[name], lies) if place else own(lies))

        names = {place: name for place, name in enumerate(self.kernels) if name not in self.outcome.skipped}
        others = [place for place in names if place]
        turn = replicate.number % len(names)
        places = others[turn:] + others[:turn]
        places.insert(len(others) - turn if self.outcome.locked else len(others), 0)
        for together in [places] if self.backend.starts_together else [[place] for place in places]:
            sandboxes = {place: opened(place, names[place]) for place in together}
            ready = [self._ready(place, names[place], sandboxes[place]) for place in together]
            self._admit([kernel for kernel in ready if kernel], kernels, benchmarks)
        for benchmark, results in zip(benchmarks, self.outcome.cases, strict=True):
            self.at(benchmark.case.name)
            results.results.append(benchmark.run())
            self.outcome.skipped |= benchmark.dropped

    def _ready(self, place: int, name: str, sandbox: Sandbox) -> TimedKernel | None:
        """Return a kernel whose sandbox has loaded it, None if that failed. The first kernel's has loaded already."""
        try:
            if place:
                sandbox.wait_ready(self._limits["check_s"])
        except Failure as failure:
            sandbox.close()
            self.outcome.skipped[name] = failure.text
            return None
        kernel = self.backend.timed_kernel(name, sandbox, self._limits["time_s"])
        kernel.required = not place
        return kernel

    def _admit(self, new: list[TimedKernel], kernels: list[TimedKernel], benchmarks: list[CaseBenchmark]) -> None:
        """Add kernels to those to be timed: warmed up, and limited to one process each. Raises Failure, Rejected."""
        for benchmark in benchmarks:
            self.at(benchmark.case.name)
            benchmark.warm_up(new)
            self.outcome.skipped |= benchmark.dropped
        for kernel in new:
            try:
                self.outcome.locked &= kernel.sandbox.keep_one_process()
                if not self.backend.starts_together:
                    kernel.sandbox.freeze()
            except Failure as failure:
                if kernel.required:
                    raise
                kernel.sandbox.close()
                self.outcome.skipped[kernel.name] = failure.text
                continue
            kernels.insert(0 if kernel.required else len(kernels), kernel)

    def _settled(self, done: int, spent_s: float) -> bool:
        """Return whether to stop after so many replicates."""
        rival, claimed = next(iter([*self.kernels][1:]), ""), bool(self.effort.control)
        reading = None
        if rival and rival not in self.outcome.skipped:
            reading = self.outcome.reading(self.first, rival, self.effort.control)
        if reading is None:
            return True
        if done < (_FEWEST_TOGETHER if self.backend.starts_together else _FEWEST):
            return not reading.doubt and reading.sure_log < _FAR_BEHIND
        patient = done < self.effort.fewest or (done < _FEWEST_TO_RANK and bool(reading.doubt))
        most = min(self.effort.most, int(done * self.effort.spent_s / max(spent_s, 1e-9)))
        if done in _LOOKS and reading.clear(claimed, patient, max(most, done)):
            return True
        return spent_s * (done + 1) / done > self.effort.spent_s * (_PATIENT if patient else 1)
