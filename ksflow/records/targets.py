"""Targets: the machines of kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksflow.records.base import digest


@dataclass(frozen=True)
class Target:
    """The machine for which kernels are built and on which they are judged."""

    name: str
    kind: str  # `cpu` or `gpu`
    chip: str
    features: tuple[str, ...] = ()  # instruction sets that a kernel may use
    march: str = "native"  # the compiler's `-march=`
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in every sandbox, for example to keep libraries off instructions that a target lacks."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Rates that nothing on it exceeds, per second: `flops.<dtype>` for arithmetic, `bytes` for main memory,
    `bytes.cache` for the fastest cache that holds a kernel's data. Of a CPU, those of one core."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `memory`, of the last `cache` before it, and of the `shared` memory of one block of threads."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured rates of one core of this CPU, named like the peaks, and `bytes.N` for working sets of up to N bytes;
    empty if not measured."""

    units: int = 0
    """Number of a GPU's multiprocessors or compute units; 0 if unknown."""
    cores: int = 1
    """Number of a CPU's cores, and threads, that a kernel has (`target.cores`, or a problem's `cores`)."""

    @property
    def fingerprint(self) -> str:
        """Identifies everything that a time depends on."""
        several = [f"{self.cores} cores"] if self.cores > 1 else []
        return f"{self.name}-{digest(self.name, self.chip, self.march, *self.features, *several, digits=8)}"
