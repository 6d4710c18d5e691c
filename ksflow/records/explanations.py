"""What a kernel does, feature by feature: facts that source and compiler show, and what a model says of them."""

from dataclasses import dataclass
from enum import StrEnum

from ksflow.records.base import Record


class Presence(StrEnum):
    """Whether a kernel has a feature."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """Neither the source nor the compiler tells."""


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
    """The lines of the source that show it: `kernel.cu:12` or `kernel.cu:12-20`. They exist."""
    feature: str = ""
    """The feature that it is about, where it is one of the catalogue's."""
    says: Presence = Presence.UNKNOWN
    """What it says of that feature."""


@dataclass(frozen=True)
class Explanation(Record):
    """What is known of a kernel's features."""

    kernel: str
    """The kernel's digest."""
    reader: str
    """The version of what read source and report."""
    features: tuple[Feature, ...]
    by: str = ""
    """The model that wrote what follows; empty where none was asked."""
    summary: str = ""
    statements: tuple[Statement, ...] = ()

    def contradicted(self, statement: Statement) -> Feature | None:
        """The fact that a statement contradicts; None where it contradicts none."""
        known = (feature for feature in self.features if feature.state is not Presence.UNKNOWN)
        fact = next((feature for feature in known if feature.name == statement.feature), None)
        return fact if fact and statement.says not in (Presence.UNKNOWN, fact.state) else None
