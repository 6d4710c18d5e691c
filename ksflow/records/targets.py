"""The machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksflow.records.base import digest


@dataclass(frozen=True)
class Target:
    """The machine kernels are built for and judged on."""

    name: str
    kind: str
    """`cpu` or `gpu`."""
    chip: str
    features: tuple[str, ...] = ()
    """Instruction sets a kernel writer can count on."""
    march: str = "native"
    """What the compiler is told (`-march=`)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in every box, for example to keep libraries off instructions that a target lacks."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Rates that nothing on it exceeds, per second: `flops.<dtype>` for arithmetic, `bytes` for main memory,
    `bytes.cache` for the fastest cache that holds a kernel's data. Of one core, where it is a CPU."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `memory`, of the last `cache` before it, and of the `shared` memory of one block of threads."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Rates that one core of this CPU was seen to reach, named as the peaks are, and `bytes.N` for working sets of up
    to N bytes; empty where nobody measured."""

    units: int = 0
    """How many multiprocessors or compute units a GPU has; 0 where nobody told."""

    @property
    def fingerprint(self) -> str:
        """Names what a time depends on."""
        return f"{self.name}-{digest(self.name, self.chip, self.march, *self.features, digits=8)}"
