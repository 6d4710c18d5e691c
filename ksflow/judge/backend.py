"""What judging on a CPU and on a GPU differ in: where contents lie, what a sandbox is, which clocks there are."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ksflow.judge.buffers import Buffers, BufferSizes
from ksflow.judge.cases import Entry, Reference
from ksflow.judge.input_pool import CasePool, PoolLimits
from ksflow.judge.overhead import Overhead
from ksflow.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.judge.timing import CaseBenchmark, Replicate, TimedKernel

Json = dict[str, Any]


class Backend:
    """A CPU's. Boxes have shared memory and are frozen between turns; see `timing` for the clocks."""

    where = "cpu"
    device_uuid = ""
    """Names the lock of the GPU (see `device_access`); empty on a CPU."""
    memory = PoolLimits()

    def __init__(self, overhead: Overhead) -> None:
        self.overhead = overhead

    def buffers(self, wanted: BufferSizes) -> Buffers:
        """Memory for one sandbox."""
        return Buffers(wanted)

    def sandbox(self, start: SandboxSpec, buffers: Buffers) -> Sandbox:
        """One sandbox."""
        return Sandbox(start, buffers)

    def timed_kernel(self, name: str, sandbox: Sandbox, reference: Reference, limit_s: float) -> TimedKernel:
        """A kernel in its sandbox, to be timed; its calls may take limit_s in all."""
        return TimedKernel(name, sandbox, reference, limit_s)

    def benchmark(
        self, case: CasePool, kernels: list[TimedKernel], feed: Iterator[Entry], replicate: Replicate
    ) -> CaseBenchmark:
        """One case."""
        return CaseBenchmark(case, kernels, feed, self.overhead, replicate)

    def evidence(self) -> Json:
        """What is known of the machine's state now."""
        return {"overhead_us": self.overhead.evidence()}

    def lease(self) -> AbstractContextManager[None]:
        """What a judgement holds for itself while it lasts."""
        return nullcontext()

    def release(self) -> None:
        """Give back memory that nothing needs, so that sandboxes can have it."""

    def hoarded(self, close: Callable[[], None]) -> bool:
        """Whether a sandbox has held so much of the memory that little was left for the judge; `close` ends the
        sandbox."""
        close()
        return False

    def probe(self) -> None:
        """Raise RuntimeError unless the machine still computes, after a sandbox that ended badly."""
