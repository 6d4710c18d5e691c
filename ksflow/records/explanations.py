"""Explanations: a kernel's features by source and compiler, and a model's statements about them."""

from dataclasses import dataclass
from enum import StrEnum

from ksflow.records.base import Record


class Presence(StrEnum):
    """Whether a kernel has a feature."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"  # neither the source nor the compiler tells


@dataclass(frozen=True)
class Feature(Record):
    """One feature of a kernel, as its source and its compiler's report show it."""

    name: str
    state: Presence
    evidence: tuple[str, ...] = ()
    """Where it is seen: `kernel.cu:12: __shared__ float tile[64]`, `compiler: gemm: 48 KiB`; or why nothing is."""


@dataclass(frozen=True)
class Statement(Record):
    """A sentence of a model about a kernel."""

    text: str
    lines: tuple[str, ...]
    """Lines of the source that show it, checked to exist: `kernel.cu:12` or `kernel.cu:12-20`."""
    feature: str = ""
    """The feature of the catalogue that it is about, if any."""
    says: Presence = Presence.UNKNOWN  # its claim about that feature


@dataclass(frozen=True)
class Explanation(Record):
    """What is known of a kernel's features."""

    kernel: str  # the kernel's digest
    reader: str
    """Version of the feature catalogue."""
    features: tuple[Feature, ...]
    by: str = ""  # the model that wrote the following; empty if none
    summary: str = ""
    statements: tuple[Statement, ...] = ()

    def find_contradiction(self, statement: Statement) -> Feature | None:
        """Return the fact that a statement contradicts, or None."""
        known = (feature for feature in self.features if feature.state is not Presence.UNKNOWN)
        fact = next((feature for feature in known if feature.name == statement.feature), None)
        return fact if fact and statement.says not in (Presence.UNKNOWN, fact.state) else None
