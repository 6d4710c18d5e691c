"""What replicates of one comparison differ by, taken apart: `python benchmarks/judge.py --spread` runs this.

Kernels of 0.45 ms and of 30 µs are timed beside themselves, in this process instead of the judge's own, so that one
thing at a time can be done otherwise:

- as judged: fresh processes, buffers that change places, a balanced order;
- one order: the same order in every round;
- buffers stay: each kernel keeps its buffers in all replicates;
- new buffers: memory of its own for every replicate, which may lie anywhere;
- one process: the processes of the first replicate serve all others;
- one process, buffers touched: the same, with 64 MB read between replicates (caches and the heap's pages are others);
- half the rounds, twice the rounds.

`between` is the standard deviation of the replicates' ratios (by medians, over three passes), `within` what a
replicate's own rounds explain of it; the last column is the half-width of the interval that four seconds buy. Huge
pages are left out where the system has none for shared memory (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
"""

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from ksflow.evaluation.judge import session
from ksflow.evaluation.judge.client import compile_loop
from ksflow.evaluation.judge.comparison import Effort, PairedComparison
from ksflow.evaluation.judge.input_pool import InputPool
from ksflow.evaluation.judge.outcome import Outcome
from ksflow.evaluation.judge.requests import CorePinning, RequestHandler
from ksflow.evaluation.judge.spinner import IdleSpinner
from ksflow.evaluation.judge.timing import CaseBenchmark, Replicate
from ksflow.evaluation.sandbox import zygote
from ksflow.kernels.hardware.target import detect
from ksflow.records import Case, Kernel, Origin, Problem, Trial
from ksflow.stages.evaluator.local import LocalEvaluator

_REPLICATES, _PASSES = 16, 3
_ROWS = (64, 2048)
_BUDGET_S = 4.0
_TOUCHED = 8 << 20
_OF_MEDIAN = 1.4826
"""A standard deviation, of the median of the distances from the median: single bursts of others do not count."""


class Here(LocalEvaluator):
    """The judge in this process."""

    def __init__(self) -> None:
        super().__init__(detect())
        light, heavy = zygote.spawn(), zygote.spawn()
        for each in (light, heavy):
            zygote.wait(each)
        torch.set_num_threads(1)
        cores = CorePinning(os.sched_getaffinity(0))
        self._handler = RequestHandler(light, heavy, IdleSpinner(), "", compile_loop(), cores)

    @contextlib.contextmanager
    def _slot(self) -> Iterator[Any]:
        idle = SimpleNamespace(ensure_running=lambda: None, judge=SimpleNamespace(post=lambda _: None), environment={})
        yield idle

    def _ask(self, slot: Any, problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._handler.answer({**request, "id": 0})
        assert answer is not None
        return answer

    def _keep_off(self, slot: Any, cores: dict[str, Any]) -> None:
        pass


class Kept(PairedComparison):
    """Whose first replicate's processes serve all others."""

    touched = False

    def _run_replicate(self, stack: Any, own: Any, opener: Any, replicate: Replicate) -> None:
        self._stack = self.__dict__.get("_stack") or contextlib.ExitStack()
        if replicate.number == 0:
            super()._run_replicate(self._stack, own, opener, replicate)
            return
        if self.touched:
            torch.ones(_TOUCHED, dtype=torch.int64).sum()
        benchmarks = [
            self.backend.benchmark(self.backend, case, self._timed, replicate) for case in self.pool.benchmarks
        ]
        for benchmark, results in zip(benchmarks, self.outcome.cases, strict=True):
            results.results.append(benchmark.run())

    def _admit(self, new: Any, kernels: Any, benchmarks: Any) -> None:
        super()._admit(new, kernels, benchmarks)
        self._timed = kernels

    def run(self, own: Any, opener: Any) -> Outcome:
        try:
            return super().run(own, opener)
        finally:
            self.__dict__.get("_stack", contextlib.ExitStack()).close()


class Touched(Kept):
    """The same, with memory read in between."""

    touched = True


def spread(kernel: Kernel, problem: Problem) -> None:
    """Print the table."""
    judge, full = Here(), CaseBenchmark.rounds_of
    stay = mock.patch.object(InputPool, "buffers", _staying(InputPool.buffers))
    fresh = mock.patch.object(InputPool, "buffers", _fresh(InputPool.buffers))
    fixed = mock.patch.object(CaseBenchmark, "_order", lambda self: [*self.kernels, None])
    kept, touched = (mock.patch.object(session, "PairedComparison", kind) for kind in (Kept, Touched))
    half, twice = (
        mock.patch.object(CaseBenchmark, "rounds_of", {count: int(rounds * times) for count, rounds in full.items()})
        for times in (0.5, 2)
    )
    variants = {"as judged": contextlib.nullcontext(), "one order": fixed, "buffers stay": stay, "new buffers": fresh}
    variants |= {"one process": kept, "one process, buffers touched": touched}
    variants |= {"half the rounds": half, "twice the rounds": twice}
    columns = ("between", "within", "seconds a replicate", f"half-width after {_BUDGET_S:g} s")
    print(" | ".join((f"{_PASSES} x {_REPLICATES} replicates", *columns)))
    for rows in _ROWS:
        of = replace(problem, benchmarks=(Case(f"{rows}x256", {"rows": rows, "cols": 256}, 9),))
        found: dict[str, list[tuple[list[float], float, float]]] = {name: [] for name in variants}
        for _ in range(_PASSES):
            for name, change in variants.items():
                with change:
                    found[name].append(_measured(judge, of, kernel))
        for name, passes in found.items():
            off = [abs(log - statistics.median(logs)) for logs, _, _ in passes for log in logs]
            between = _OF_MEDIAN * statistics.median(off)
            within, seconds = (statistics.median(column) for column in list(zip(*passes, strict=True))[1:])
            half_width = 1.96 * between / math.sqrt(max(_BUDGET_S / seconds, 1))
            print(f"{rows} rows, {name} | {between:.2%} | {within:.2%} | {seconds:.2f} | {half_width:.2%}", flush=True)


def _measured(judge: Here, of: Problem, kernel: Kernel) -> tuple[list[float], float, float]:
    """What replicates read (logarithms), the error within one, and what one takes."""
    within, endless = list[float](), mock.patch.object(PairedComparison, "_settled", return_value=False)
    read = Outcome.reading

    def reading(self: Outcome, *names: Any) -> Any:
        found = read(self, *names)
        if found:
            within.append(found.effect.foreseen)
        return found

    effort = mock.patch.object(session.Judgement._compare, "__defaults__", (Effort(most=_REPLICATES, spent_s=600.0),))
    level = mock.patch.object(CaseBenchmark, "_hopeless", return_value=False)
    with endless, effort, level, mock.patch.object(Outcome, "reading", reading):
        trial = Trial("00001", Origin.SEED, kernel=kernel)
        started = time.perf_counter()
        found = judge(of, kernel, (trial,))
        seconds = (time.perf_counter() - started) / _REPLICATES
    (row,) = found.evidence.against
    own = math.sqrt(max(within[0] ** 2 * len(row.replicates) - 0.02**2, 0.0))
    return list(map(math.log, row.replicates)), own, seconds


def _staying(make: Callable[..., Any]) -> Callable[..., Any]:
    class Same(list[Any]):
        """Whose places do not turn with the replicate: `(place + number) % length` is asked in the order of places."""

        def __getitem__(self, place: Any) -> Any:
            self.asked = getattr(self, "asked", -1) + 1
            return super().__getitem__(self.asked % len(self))

    return lambda self, count: Same(make(self, count))


def _fresh(make: Callable[..., Any]) -> Callable[..., Any]:
    def buffers(self: InputPool, count: int) -> Any:
        self._buffers = []
        return make(self, count)

    return buffers
