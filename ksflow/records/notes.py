"""Notes, and the documents that they come from."""

from dataclasses import dataclass
from enum import StrEnum

from ksflow.records.base import Record


class Status(StrEnum):
    """How far a note can be trusted."""

    DOCUMENTED = "documented"  # a quoted document says so
    CITED = "cited"
    """A named document says so, without a quote: it cannot be checked here."""
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

    place: str
    """Where it is: `page 113, 4.2 Wait states`, `lines 40-90`; empty for a document in one piece."""
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
