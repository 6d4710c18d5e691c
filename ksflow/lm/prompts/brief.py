"""An ordered list of sections, filled to a budget of tokens by priority; the most stable sections come first."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from ksflow.kernels.source.tokens import estimate

T = TypeVar("T")
count = estimate  # of a text's tokens


class SectionKind(IntEnum):
    """How often a section changes. Sections are in this order, so that prompts share their beginning."""

    STABLE = 0  # the same for all of a run's calls: target, task, interface, notes
    SLOW = 1  # changes with the base kernel or the population
    VOLATILE = 2  # of this call alone: experiment, failure


STABLE, SLOW, VOLATILE = SectionKind


@dataclass(frozen=True)
class Section:
    """A named part of a prompt."""

    name: str  # the signature's field
    kind: SectionKind
    text: str | Callable[[int], str]  # the whole text, or a function that writes one of at most so many tokens
    tokens: int = 0  # limit for a function in `text`
    priority: int = 0  # 0 is always there, in full; then lower before higher

    def fit(self, room: int | None) -> str:
        """Return the text in so many tokens (None: any), or a remark that a whole text does not fit."""
        if not isinstance(self.text, str):
            most = self.tokens if room is None or not self.priority else max(0, min(self.tokens, room))
            return fit_text(most, self.text, count)
        size = count(self.text)
        if room is None or not self.priority or size <= room:
            return self.text
        return f"(left out: its {size} tokens have no room here)"


def fit_text(tokens: int, write: Callable[[int], T], size_of: Callable[[T], int]) -> T:
    """Return `write`'s result of at most so many tokens; `write` itself estimates tokens from characters."""
    written, asked = write(tokens), tokens
    while asked and (size := size_of(written)) > tokens:
        asked = asked * tokens // size
        written = write(asked)
    return written


class Brief(dict[str, str]):
    """Sections as they are sent: name -> text, in order."""

    def __init__(
        self, texts: Mapping[str, str], kinds: Mapping[str, SectionKind], left_out: tuple[str, ...] = ()
    ) -> None:
        """left_out: names of sections that are missing or shortened."""
        super().__init__(texts)
        self.kinds, self.left_out = dict(kinds), left_out


def fill(sections: Iterable[Section], budget: int | None = None) -> Brief:
    """Return the sections in so many tokens, in order. Priority 0 is included even beyond the budget."""
    listed = list(sections)
    assert listed == sorted(listed, key=lambda each: each.kind), "stable sections come first"
    texts: dict[str, str] = {}
    left_out: set[str] = set()
    room = budget
    for section in sorted(listed, key=lambda each: (each.priority, each.kind)):
        text = texts[section.name] = section.fit(room)
        if room is not None:
            ample = not section.priority or 0 < section.tokens <= room
            room -= count(text)
            if not ample and text != section.fit(None):
                left_out.add(section.name)
    kinds = {section.name: section.kind for section in listed}
    return Brief({name: texts[name] for name in kinds}, kinds, tuple(name for name in kinds if name in left_out))
