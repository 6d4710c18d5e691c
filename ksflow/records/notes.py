"""What is known: notes, the documents that they come from, and explanations of kernels."""

from dataclasses import dataclass
from enum import StrEnum

from ksflow.records.base import Record


class Status(StrEnum):
    """How far a note can be trusted."""

    DOCUMENTED = "documented"  # a quoted document says so
    CITED = "cited"  # a named document says so, without a quote: it cannot be checked here
    MEASURED = "measured"
    ASSUMED = "assumed"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Note(Record):
    """A finding, with where it comes from."""

    title: str
    text: str
    sources: tuple[str, ...]  # documents with section, or trial ids
    targets: tuple[str, ...] = ()  # chips to which it applies; empty for all
    status: Status = Status.DOCUMENTED
    problems: tuple[str, ...] = ()  # problems to which it applies; empty for all
    quotes: tuple[str, ...] = ()
    """For each source a quote, empty for a trial or a probe; no quotes at all if unchecked."""
    closes: tuple[str, ...] = ()
    """Trials that it replaces: dead ends, which prompts leave out."""
    program: str = ""
    """The program that measured it, a file beside the note."""
    challenge: str = ""  # why a person doubts it; empty if none does

    def __post_init__(self) -> None:
        if self.quotes and len(self.quotes) != len(self.sources):
            raise ValueError(f"note {self.title!r} has {len(self.quotes)} quotes for {len(self.sources)} sources")


@dataclass(frozen=True)
class Passage:
    """A piece of a document that a source can name."""

    place: str  # where it is: `page 113, 4.2 Wait states`, `lines 40-90`; empty for a document in one piece
    text: str


@dataclass(frozen=True)
class Document:
    """Raw text to digest."""

    source: str  # its name, with which sources begin
    passages: tuple[Passage, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n\n".join(passage.text for passage in self.passages)


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
    lines: tuple[str, ...]  # lines of the source that show it, checked to exist: `kernel.cu:12` or `kernel.cu:12-20`
    feature: str = ""  # the feature of the catalogue that it is about, if any
    says: Presence = Presence.UNKNOWN  # its claim about that feature


@dataclass(frozen=True)
class Explanation(Record):
    """What is known of a kernel's features."""

    kernel: str  # the kernel's digest
    reader: str  # version of the feature catalogue
    features: tuple[Feature, ...]
    by: str = ""  # the model that wrote the following; empty if none
    summary: str = ""
    statements: tuple[Statement, ...] = ()

    def find_contradiction(self, statement: Statement) -> Feature | None:
        """Return the fact that a statement contradicts, or None."""
        known = (feature for feature in self.features if feature.state is not Presence.UNKNOWN)
        fact = next((feature for feature in known if feature.name == statement.feature), None)
        return fact if fact and statement.says not in (Presence.UNKNOWN, fact.state) else None
