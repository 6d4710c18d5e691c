"""One ordered list of sections, filled to a budget of tokens: what matters most first, of equals what changes least."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from ksflow.source.tokens import estimate

T = TypeVar("T")
count = estimate
"""Tokens of a text, where no model's own tokenizer is asked."""


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

    def within(self, room: int | None, count: Callable[[str], int]) -> str:
        """The text in so many tokens; None is as many as it takes. It says so where a whole text has no room."""
        if not isinstance(self.text, str):
            most = self.tokens if room is None or not self.priority else max(0, min(self.tokens, room))
            return within(most, self.text, count)
        size = count(self.text)
        if room is None or not self.priority or size <= room:
            return self.text
        return f"(left out: its {size} tokens have no room here)"


def within(tokens: int, write: Callable[[int], T], count: Callable[[T], int]) -> T:
    """What `write` makes of so many tokens, or of fewer: it reckons with so many characters a token, `count` counts."""
    written, asked = write(tokens), tokens
    while asked and (size := count(written)) > tokens:
        asked = asked * tokens // size
        written = write(asked)
    return written


class Brief(dict[str, str]):
    """Sections as they are sent: name -> text, in their order."""

    def __init__(self, texts: Mapping[str, str], kinds: Mapping[str, Kind], left_out: tuple[str, ...] = ()) -> None:
        """`left_out`: the names of those that are not there, or shorter than they would be."""
        super().__init__(texts)
        self.kinds, self.left_out = dict(kinds), left_out


def fill(sections: Iterable[Section], budget: int | None = None, count: Callable[[str], int] = estimate) -> Brief:
    """The sections in so many tokens, in their order. What has priority 0 is there even where it is more than that."""
    listed = list(sections)
    assert listed == sorted(listed, key=lambda each: each.kind), "stable sections come first"
    texts: dict[str, str] = {}
    left_out: set[str] = set()
    room = budget
    for section in sorted(listed, key=lambda each: (each.priority, each.kind)):
        text = texts[section.name] = section.within(room, count)
        if room is not None:
            ample = not section.priority or 0 < section.tokens <= room
            room -= count(text)
            if not ample and text != section.within(None, count):
                left_out.add(section.name)
    kinds = {section.name: section.kind for section in listed}
    return Brief({name: texts[name] for name in kinds}, kinds, tuple(name for name in kinds if name in left_out))
