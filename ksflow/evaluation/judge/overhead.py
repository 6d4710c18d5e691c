"""Overhead of a batch: measured by a trusted null kernel in a sandbox of its own, on the same core.

It has a batch in every round of a benchmark, on the same contents and with the same steps as the kernels' batches
(inputs written while its sandbox is frozen, message, thaw, freeze), so the overhead is measured among them and varies
with the machine as they do. The statistic subtracted is the same as the one that is ranked, at the lower end of its
interval: an unlucky null batch makes no kernel faster than it is.
Only work that no kernel can leave out is subtracted. So `runners/loop.cpp` calls native kernels and the null kernel,
with nothing but a receive and a send around a call; Python's work around a kernel in Python counts as that kernel's.
"""

import operator
from dataclasses import dataclass, field

import torch

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.cases import Entry
from ksflow.evaluation.judge.clocks import Clocks
from ksflow.evaluation.judge.failure import Failure
from ksflow.evaluation.judge.input_pool import CasePool
from ksflow.evaluation.judge.sandboxed import Sandbox, SandboxSpec

_FIRST = 9  # null batches before a benchmark: a first estimate, and further samples for benchmarks of few rounds
_FEWEST = 3
_NEAR = 1.1
_BUSY = 1.4  # limit of what is subtracted, as a multiple of the fastest null batch
_MOST_BYTES = 1 << 20
"""Bytes of the contents that the judge writes for a null batch; writing all of them would fill caches."""
_PATIENCE_S = 10.0


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
        """Compute the times to subtract; batches before the benchmark count only while there are few others.

        Preempted batches are left out, and anything far above the fastest batch is capped: a busy machine delays some
        batches by as much as a short kernel takes.
        """
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

    @property
    def native(self) -> bool:
        """Whether native kernels, and so the null kernel, are called in C++."""
        return bool(self._start.loop)

    def evidence(self) -> dict[str, float]:
        """Return the record of the latest benchmark; empty before the first one."""
        return self._latest.evidence() if self._latest.wall else {}

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
                self._run_batch(null)
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
            self._run_batch(null)
        except Failure as failure:
            raise self._failed(failure) from failure
        self._sandbox.outputs[:outputs].clone()

    def _run_batch(self, null: NullTimings) -> None:
        null.add(*self._clocks.call(bytes(1), _PATIENCE_S))

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
