"""The clocks of a timed call, and the overhead that is subtracted: that of a null kernel's batch on the same core.

The null kernel has a batch in every round of a benchmark, on the same contents and with the same steps as the kernels'
batches (inputs written while its sandbox is frozen, message, thaw, freeze), so the overhead varies with the machine as
they do. The statistic subtracted is the same as the one that is ranked, at the lower end of its interval: an unlucky
null batch makes no kernel faster than it is.
Only work that no kernel can leave out is subtracted. So `runners/loop.cpp` calls native kernels and the null kernel,
with nothing but a receive and a send around a call; Python's work around a kernel in Python counts as that kernel's.
"""

import contextlib
import operator
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.cases import Entry
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.host import SandboxSpec
from ksflow.evaluation.judge.input_pool import CasePool
from ksflow.evaluation.judge.sandboxed import Sandbox
from ksflow.evaluation.sandbox import linux
from ksflow.home import text_of

_FIRST = 9  # null batches before a benchmark: a first estimate, and further samples for benchmarks of few rounds
_FEWEST = 3
_NEAR = 1.1
_BUSY = 1.4  # limit of what is subtracted, as a multiple of the fastest null batch
_MOST_BYTES = 1 << 20
"""Bytes of the contents that the judge writes for a null batch; writing all of them would fill caches."""
_PATIENCE_S = 10.0
_IN_PYTHON = "Python's, as there is no C++ compiler: a kernel that takes its place seems up to 6 µs faster"
_STOP_S = 5e-6  # CPU time of stopping an idle thread: 4 µs on an AMD EPYC (a virtual machine, 2026-11-29)
_REST_S, _STILL = 20e-6, 3  # how soon after an answer no thread runs, and in how many looks at its clock


class Clocks:
    """The clocks of one sandbox's calls, between which it is frozen.

    With one core the second clock is the CPU time since the last freeze. With several cores, where CPU time may exceed
    wall time, it is the wall time and all CPU time outside of the call: before the sandbox is thawed, and from the
    answer until it is frozen, which is at most the time that this took. If no thread runs any more soon after the
    answer, the cost of stopping an idle thread for each core is no part of it.
    """

    tree_s = 0.0  # CPU seconds of the latest call, all threads
    threads = 1  # number after the latest call, with several cores
    delay_s = 0.0  # for how long a thread waited for a core in the latest call, with several cores

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._clock_s = 0.0  # CPU time at the last freeze
        self._waited_s: dict[Path, float] = {}  # thread -> seconds for which it has waited for a core, by then

    def start(self) -> None:
        """Freeze the sandbox, before its first timed call. Raises Failure."""
        self._sandbox.freeze()
        self._clock_s = self._sandbox.cpu_s()
        self._look_at_threads()

    def call(self, slots: bytes, timeout_s: float) -> tuple[float, float]:
        """Call the kernel and freeze the sandbox; return the seconds by both clocks. Raises Failure."""
        box, before_s = self._sandbox, self._clock_s
        thawed_s = box.cpu_s() if box.cores > 1 else 0.0
        wall_s = box.go(slots, timeout_s)
        answered_s, since = box.cpu_s() if box.cores > 1 else 0.0, time.perf_counter()
        idle = box.cores > 1 and self._comes_to_rest()
        box.freeze()
        passed_s = time.perf_counter() - since
        self._clock_s = box.cpu_s()
        self.tree_s = self._clock_s - before_s
        if box.cores == 1:
            return wall_s, self.tree_s
        self._look_at_threads()
        after_s = self._clock_s - answered_s - idle * _STOP_S * min(self.threads - 1, box.cores)
        return wall_s, wall_s + thawed_s - before_s + min(max(after_s, 0.0), passed_s)

    def _comes_to_rest(self) -> bool:
        """Return whether the CPU clock stands still for several looks: no thread runs."""
        end, seen, still = time.perf_counter() + _REST_S, 0.0, 0
        while still < _STILL and time.perf_counter() < end:
            before, seen = seen, self._sandbox.cpu_s()
            still = still + 1 if seen == before else 0
        return still >= _STILL

    def _look_at_threads(self) -> None:
        """With several cores, count the threads, and find for how long one has waited for a core since the last
        look. More threads than cores wait for each other, which says nothing about other programs."""
        if self._sandbox.cores == 1:
            return
        before, waited, tasks = self._waited_s, dict[Path, float](), linux.tasks(self._sandbox.pid)
        for task in tasks:
            with contextlib.suppress(IndexError):  # the thread has ended
                waited[task] = int(text_of(task / "schedstat").split()[1]) * 1e-9
        delays = [seconds - before.get(task, seconds) for task, seconds in waited.items()]
        self._waited_s, self.threads = waited, max(len(tasks), 1)
        self.delay_s = max(delays, default=0.0) if self.threads <= self._sandbox.cores + 1 else 0.0


@dataclass
class NullTimings:
    """The null batches of one benchmark, in seconds, and the times to subtract from a batch's two clocks."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    wall_s: float = 0.0  # to subtract from wall times
    cpu_s: float = 0.0  # to subtract from CPU times
    stopping_s: float = 0.0  # CPU time of a batch beyond its wall time: the cost of stopping the sandbox
    undisturbed: int = 0  # number of batches that were not preempted

    def add(self, wall_s: float, cpu_s: float) -> None:
        self.wall.append(wall_s)
        self.cpu.append(cpu_s)

    def settle(self) -> None:
        """Compute the times to subtract, without preempted batches and capped a little above the fastest batch: a
        busy machine delays some by as much as a short kernel takes. Batches before the benchmark count while there
        are few others."""
        pairs = zip(self.wall, self.cpu, strict=True)
        undisturbed = [statistics.is_undisturbed(wall_s * 1e6, cpu_s * 1e6) for wall_s, cpu_s in pairs]
        first = _FIRST if len(self.wall) >= 2 * _FIRST else 0
        wall, cpu, mask = self.wall[first:], self.cpu[first:], undisturbed[first:]
        most_wall_s, most_cpu_s = (_BUSY * least_s for least_s in self.least_s)
        self.cpu_s = min(_surely(cpu), most_cpu_s)
        few = sum(mask) < _FEWEST
        self.wall_s = min(most_wall_s, *([self.cpu_s, *wall] if few else [_surely(statistics.pick(wall, mask))]))
        beyond = [spent - passed for passed, spent in zip(self.wall, self.cpu, strict=True)]
        self.stopping_s = max(statistics.median(statistics.pick(beyond, undisturbed)), 0.0)
        self.undisturbed = sum(undisturbed)

    @property
    def least_s(self) -> tuple[float, float]:
        """The least wall and CPU time of a batch."""
        return min(self.wall), min(self.cpu)

    def evidence(self) -> dict[str, float]:
        """Return the record, in µs."""
        parts = {"wall_p10": 0.1, "wall_p50": 0.5, "wall_p90": 0.9}
        row = {f"{name}_us": round(statistics.quantile(self.wall, share) * 1e6, 1) for name, share in parts.items()}
        off = {"off_wall_us": round(self.wall_s * 1e6, 2), "off_cpu_us": round(self.cpu_s * 1e6, 2)}
        return {**row, **off}


class Overhead:
    """The null kernel's sandbox. Raises Failure of kind harness: no candidate is to blame."""

    def __init__(self, start: SandboxSpec) -> None:
        self._start = start
        self._sandbox: Sandbox | None = None
        self._clocks: Clocks
        self._latest = NullTimings()
        self._sizes: tuple[int, ...] = (0, 0)
        self._held: tuple[int, ...] = (4096, 4096)

    def evidence(self) -> dict[str, Any]:
        """Return the record of the latest benchmark, empty before the first one; and who calls native kernels."""
        python = {} if self._start.loop else {"harness": _IN_PYTHON}
        return {"overhead_us": self._latest.evidence() if self._latest.wall else {}, **python}

    @property
    def usual_s(self) -> float:
        """The median of the latest benchmark's null batches, to tell short kernels from others."""
        return statistics.median(self._latest.wall) if self._latest.wall else 0.0

    def begin(self, case: CasePool) -> NullTimings:
        """Stage a case, and run null batches without contents, for a first estimate."""
        try:
            sandbox = self._running(case)
            sandbox.thaw()
            sandbox.stage("", case.layout, case.dims, 1)
            self._clocks = Clocks(sandbox)
            self._clocks.start()
            null = self._latest = NullTimings()
            for _ in range(_FIRST):
                null.add(*self._clocks.call(bytes(1), _PATIENCE_S))
        except Failure as failure:
            raise self._failed(failure) from failure
        null.settle()
        return null

    def run_batch(self, null: NullTimings, entry: Entry) -> None:
        """Run one null batch among the kernels'."""
        assert self._sandbox is not None
        inputs, outputs = self._sizes
        self._sandbox.outputs[:outputs].fill_(0)
        self._sandbox.inputs[:inputs].copy_(entry.packed[:inputs])
        try:
            null.add(*self._clocks.call(bytes(1), _PATIENCE_S))
        except Failure as failure:
            raise self._failed(failure) from failure
        self._sandbox.outputs[:outputs].clone()

    def _failed(self, failure: Failure) -> Failure:
        """Close the sandbox, so that the next benchmark gets a new one; return the failure to raise."""
        if self._sandbox is not None:
            self._sandbox.close()
        self._sandbox = None
        return Failure("harness", f"the null kernel's sandbox: {failure.text}")

    def _running(self, case: CasePool) -> Sandbox:
        layout = case.layout
        self._sizes = min(layout.input_bytes, _MOST_BYTES), min(layout.output_bytes, _MOST_BYTES)
        if self._sandbox is not None and any(map(operator.gt, self._sizes, self._held)):
            self._sandbox.close()
            self._sandbox = None
        if self._sandbox is None:
            self._held = tuple(map(max, self._sizes, self._held))
            self._sandbox = Sandbox(self._start, Buffers(BufferSizes(*self._held)))
            self._sandbox.wait_ready(_PATIENCE_S)
            self._sandbox.keep_one_process()
        return self._sandbox


def _surely(seconds: list[float]) -> float:
    """Return the low end of the low mean's interval, limited to a little above the fastest tenth."""
    low, _ = statistics.low_interval(seconds, torch.Generator().manual_seed(0))
    return min(low, _NEAR * statistics.quantile(seconds, 0.1))
