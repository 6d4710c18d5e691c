"""What kernels do for a whole model: the model with them and without, timed in turns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ksflow.records.base import Record
from ksflow.records.evidence import Ratio


@dataclass(frozen=True)
class Engaged(Record):
    """A kernel in the place of a region's modules."""

    region: str
    branch: str
    """The kernel's in its lineage."""
    modules: int
    hits: Mapping[str, float]
    """`eager` or `compiled` -> how often the kernel ran in a timed call, on average."""
    share_here: float
    """The modules' part of the time of the model that was not compiled, in these processes."""
    ratio_here: float
    """How many times as fast as the modules' own forward the kernel was in that model."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Why, and how often, a timed call that was not compiled went to a module's own forward."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """The modules' part of the model's time, by the profile; `eager` as it was here, where that says nothing."""
    ratios: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """How many times as fast as the modules' own forward the kernel is by the judge, and the interval."""


@dataclass(frozen=True)
class Way(Record):
    """The model called in one way: `eager`, or `compiled`."""

    name: str
    without_us: float
    with_us: float
    ratio: Ratio
    """How many times as fast the model is with the kernels."""
    difference: float
    """How far the outputs with the kernels are from those without: the norm of the difference as a share of theirs."""
    bound: float
    """What that may be: a few roundings, or a few times what torch.compile alone makes of it."""
    predicted: tuple[float, float, float] | None = None
    """The same by Amdahl's law, from the profile's shares and the judge's ratios; None where one is not known."""

    @property
    def alike(self) -> bool:
        """Whether the outputs are."""
        return self.difference <= self.bound


@dataclass(frozen=True)
class Proof(Record):
    """Several replicates, each in a process of its own."""

    model: str
    """The file's name."""
    machine: str
    threads: int
    torch: str
    mode: str
    """Of torch.compile."""
    ways: tuple[Way, ...]
    """Those in which a kernel ran: of another there is no result."""
    kernels: tuple[Engaged, ...]
    remarks: tuple[str, ...] = ()
    """Why there is no result of a way, and why one is not what Amdahl's law says."""


def amdahl(parts: Iterable[tuple[float, float]]) -> float:
    """How many times as fast a whole is whose parts (their share of its time) are so many times as fast."""
    known = list(parts)
    return 1 / (1 - sum(share for share, _ in known) + sum(share / ratio for share, ratio in known))
