"""One ordered list of sections, filled to a budget of tokens: what matters most first, of equals what changes least."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from ksflow.notes.relevance import CHARACTERS


class Kind(IntEnum):
    """How often a section changes. Sections stand in this order, so that what two prompts share is at their start."""

    STABLE = 0
    """The same for all of a run's questions: target, task, interface, notes."""
    SLOW = 1
    """Changes with the base kernel or the population."""
    VOLATILE = 2
    """Of this question alone: experiment, failure."""


STABLE, SLOW, VOLATILE = Kind


@dataclass(frozen=True)
class Section:
    """A named part of a prompt."""

    name: str
    """The signature's field that it fills."""
    kind: Kind
    text: str | Callable[[int], str]
    """The whole text, or what writes one of at most so many tokens."""
    tokens: int = 0
    """The most that is written where `text` is a function."""
    priority: int = 0
    """0 is always there and whole; of the others the lower come first."""

    def within(self, room: int | None) -> str:
        """The text in so many tokens; None is as many as it takes. It says so where a whole text has no room."""
        if not isinstance(self.text, str):
            return self.text(self.tokens if room is None or not self.priority else max(0, min(self.tokens, room)))
        size = count(self.text)
        if room is None or not self.priority or size <= room:
            return self.text
        return f"(left out: its {size} tokens have no room here)"


@dataclass(frozen=True)
class Brief:
    """Sections as they are sent."""

    texts: dict[str, str]
    """By name, in order."""
    left_out: tuple[str, ...] = ()
    """The names of those that are not there, or shorter than they would be."""

    @property
    def tokens(self) -> int:
        """About so many."""
        return sum(map(count, self.texts.values()))


def fill(sections: Iterable[Section], budget: int | None = None) -> Brief:
    """The sections in so many tokens, in their order. What has priority 0 is there even where it is more than that."""
    given = list(sections)
    assert given == sorted(given, key=lambda one: one.kind), "stable sections come first"
    texts: dict[str, str] = {}
    left_out: set[str] = set()
    for section in sorted(given, key=lambda one: (one.priority, one.kind)):
        room = None if budget is None else budget - sum(map(count, texts.values()))
        texts[section.name] = section.within(room)
        if room is not None and texts[section.name] != section.within(None):
            left_out.add(section.name)
    names = [section.name for section in given]
    return Brief({name: texts[name] for name in names}, tuple(name for name in names if name in left_out))


def count(text: str) -> int:
    """Tokens of a text, by and large."""
    return -(-len(text) // CHARACTERS)
