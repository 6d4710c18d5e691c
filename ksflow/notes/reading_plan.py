"""Reading of long documents: a model chooses places in their outline, and ranking fills the rest."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ksflow.errors import ConfigError
from ksflow.notes.relevance import ShownPassage, batches, groups, outline, rank

Choose = Callable[[str, str], tuple[int, ...]]
"""Takes an outline and the room left, in words; returns numbers of its lines, the most useful first."""


@dataclass(frozen=True)
class ReadingPlan:
    """Passages to read, in pieces, and unread ones."""

    pieces: tuple[tuple[ShownPassage, ...], ...]
    unread: tuple[ShownPassage, ...] = ()


@dataclass(frozen=True)
class ReadingBudget:
    """Limits of a digestion."""

    tokens: int  # of everything that is sent
    fixed: int  # of each prompt, beside the documents
    piece: int  # characters of documents in one prompt

    def fits(self, shown: Sequence[ShownPassage], before: int = 0) -> bool:
        """Return whether all of it can be read, after `before` tokens."""
        parts = batches(shown, self.piece)
        return before + sum(self.fixed + sum(item.tokens for item in part) for part in parts) <= self.tokens


def plan_reading(shown: Sequence[ShownPassage], wanted: str, room: ReadingBudget, choose: Choose) -> ReadingPlan:
    """Plan to read everything if it fits; else the places that `choose` returns, then passages similar to the question.

    Raises ConfigError without room for a single passage.
    """
    if room.fits(shown):
        return ReadingPlan(tuple(batches(shown, room.piece)))
    sections = groups(shown)
    text = outline(sections)
    before = room.fixed + len(text) // 3
    ranked = rank(shown, wanted)
    order = {item.order: index for index, item in enumerate(ranked)}
    named = [
        item
        for number in choose(text, f"about {room.tokens - before} of {sum(item.tokens for item in shown)} tokens")
        for item in sorted(sections[number - 1], key=lambda item: order.get(item.order, len(order)))
    ]
    wished = list(dict.fromkeys([*named, *ranked]))
    count = bisect_left(range(1, len(wished) + 1), True, key=lambda most: not room.fits(wished[:most], before))
    chosen = wished[:count]
    if not chosen:
        raise ConfigError(f"digester.tokens={room.tokens} leaves no room for a passage; raise it")
    read = {item.order for item in chosen}
    unread = tuple(item for item in shown if item.order not in read)
    return ReadingPlan(tuple(batches(chosen, room.piece)), unread)
