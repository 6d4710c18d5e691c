"""Proofs: a whole model with kernels and without, timed in turns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ksflow.records.base import Record
from ksflow.records.comparisons import Ratio


@dataclass(frozen=True)
class Engaged(Record):
    """A kernel in place of a region's modules."""

    region: str
    branch: str  # the kernel's in its lineage
    modules: int
    hits: Mapping[str, float]  # `eager` or `compiled` -> how often the kernel ran in a timed call, on average
    share_here: float  # the modules' share of the uncompiled model's time, in these processes
    ratio_here: float  # the kernel's speed-up over the modules' own forward in that model
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of timed calls, not compiled, that used a module's own forward."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """The modules' share of the model's time, by the profile; `eager` as measured here if the profile has none."""
    ratios: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """The judge's speed-up of the kernel over the modules' own forward, with its interval."""


@dataclass(frozen=True)
class Way(Record):
    """The model called in one way: `eager`, or `compiled`."""

    name: str
    without_us: float
    with_us: float
    ratio: Ratio  # the model's speed-up with the kernels
    difference: float
    """Difference of the outputs with and without the kernels: its norm as a share of the outputs' norm."""
    bound: float
    """Limit of the difference: a few roundings, or a few times the difference that torch.compile alone makes."""
    predicted: tuple[float, float, float] | None = None
    """The speed-up by Amdahl's law, from the profile's shares and the judge's ratios; None if one is unknown."""

    @property
    def outputs_agree(self) -> bool:
        """Whether the difference is within its bound."""
        return self.difference <= self.bound


@dataclass(frozen=True)
class Proof(Record):
    """Several replicates, each in a process of its own."""

    model: str  # the file's name
    machine: str
    threads: int
    torch: str
    mode: str  # of torch.compile
    ways: tuple[Way, ...]  # the ways in which a kernel ran
    kernels: tuple[Engaged, ...]
    remarks: tuple[str, ...] = ()  # why a way has no result, or one that differs from Amdahl's law


def amdahl(parts: Iterable[tuple[float, float]]) -> float:
    """Return the speed-up of a whole from its parts' (share of the time, speed-up)."""
    known = list(parts)
    return 1 / (1 - sum(share for share, _ in known) + sum(share / ratio for share, ratio in known))
