"""What is known, and where from."""

from dataclasses import dataclass
from enum import StrEnum

from ksflow.records.base import Record


class Status(StrEnum):
    """How far a note can be trusted."""

    DOCUMENTED = "documented"
    """A document says so, in the words that are quoted."""
    CITED = "cited"
    """A document is named that says so, but not quoted: nobody can check it here."""
    MEASURED = "measured"
    ASSUMED = "assumed"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Note(Record):
    """A finding, with where it comes from."""

    title: str
    text: str
    sources: tuple[str, ...]
    """Documents with section, or trial ids."""
    targets: tuple[str, ...] = ()
    """The chips it holds for; none means all."""
    status: Status = Status.DOCUMENTED
    problems: tuple[str, ...] = ()
    """The problems it bears on; none means all."""
    quotes: tuple[str, ...] = ()
    """For each source the words there that say so, empty for a trial or a probe; none at all where nobody checked."""
    closes: tuple[str, ...] = ()
    """Trials that it stands for: dead ends, which prompts leave out."""
    program: str = ""
    """The program that measured it, as a file beside the note."""
    challenge: str = ""
    """Why a person doubts it; empty where nobody does."""

    def __post_init__(self) -> None:
        if self.quotes and len(self.quotes) != len(self.sources):
            raise ValueError(f"note {self.title!r} has {len(self.quotes)} quotes for {len(self.sources)} sources")


@dataclass(frozen=True)
class Passage:
    """A piece of a document that a source can name."""

    place: str
    """Where it is: `page 113, 4.2 Wait states`, `lines 40-90`; empty where the document is one piece."""
    text: str


@dataclass(frozen=True)
class Document:
    """Raw text to digest."""

    source: str
    """Its name, as sources begin."""
    passages: tuple[Passage, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n\n".join(passage.text for passage in self.passages)
