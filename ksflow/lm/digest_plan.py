"""What is read of documents that are too long: a model names places in their outline, arithmetic fills the rest."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ksflow.errors import ConfigError, StageError
from ksflow.lm.program import Inquiry, Program
from ksflow.lm.relevance import ShownPassage, batches, groups, outline, rank

Choose = Callable[[str, str], tuple[int, ...]]
"""Given an outline and how much can be read: numbers of its lines, the most useful first."""


class Places(dspy.Signature):  # type: ignore[misc]
    """You choose what a team that optimises one kernel reads of documents that are too long to read whole.

    Name the places that most likely say what someone who writes this kernel on this hardware needs and cannot guess:
    exact semantics of the instructions it will use, layouts of their operands, sizes, alignment, limits, costs, hazards
    and waits, the memory hierarchy, and code that solves the same or a similar task. Leave out prefaces, histories,
    legal text, installation, and what concerns other hardware. Prefer a few places that matter to many that might.
    """

    task: str = dspy.InputField(desc="the task that is read for")
    target: str = dspy.InputField(desc="the hardware")
    outline: str = dspy.InputField(desc="the places: number, name, length, and how each begins")
    room: str = dspy.InputField(desc="how much can be read")
    places: tuple[int, ...] = dspy.OutputField(
        desc="a list of the numbers of places, the most useful first, for example [12, 3, 40]"
    )


@dataclass(frozen=True)
class ReadingPlan:
    """What is read, in pieces, and what is not."""

    pieces: tuple[tuple[ShownPassage, ...], ...]
    unread: tuple[ShownPassage, ...] = ()


@dataclass(frozen=True)
class ReadingBudget:
    """What a digestion may read."""

    tokens: int
    """Of everything that is sent."""
    fixed: int
    """Of each prompt, beside the documents."""
    piece: int
    """Characters of documents in one prompt."""

    def fits(self, shown: Sequence[ShownPassage], before: int = 0) -> bool:
        """Whether all of it can be read, after `before` tokens."""
        parts = batches(shown, self.piece)
        return before + sum(self.fixed + sum(item.tokens for item in part) for part in parts) <= self.tokens


def plan_reading(shown: Sequence[ShownPassage], wanted: str, room: ReadingBudget, choose: Choose) -> ReadingPlan:
    """All of it where there is room; else the places that `choose` names, then what shares words with the question.

    ConfigError where there is no room for a single passage.
    """
    if room.fits(shown):
        return ReadingPlan(tuple(batches(shown, room.piece)))
    made = groups(shown)
    text = outline(made)
    before = room.fixed + len(text) // 3
    ranked = rank(shown, wanted)
    order = {item.order: place for place, item in enumerate(ranked)}
    named = [
        item
        for number in choose(text, f"about {room.tokens - before} of {sum(item.tokens for item in shown)} tokens")
        for item in sorted(made[number - 1], key=lambda item: order.get(item.order, len(order)))
    ]
    wished = list(dict.fromkeys([*named, *ranked]))
    count = bisect_left(range(1, len(wished) + 1), True, key=lambda most: not room.fits(wished[:most], before))
    chosen = wished[:count]
    if not chosen:
        raise ConfigError(f"digester.tokens={room.tokens} leaves no room for a passage; raise it")
    kept = {item.order for item in chosen}
    unread = tuple(item for item in shown if item.order not in kept)
    return ReadingPlan(tuple(batches(chosen, room.piece)), unread)


def chooser(
    program: Program,
    inputs: dict[str, str],
    told: Callable[[str], None],
    asking: Callable[[dict[str, str], str], None] = lambda inputs, refused: None,
) -> Choose:
    """Asks the model for places; where it gives none, `told` is told why, and none are named.

    `asking` is told of each attempt: what is asked, and why the answer before was refused. Its StageError ends it.
    """

    def choose(text: str, room: str) -> tuple[int, ...]:
        last = text.count("\n") + 1

        def accept(answer: dict[str, Any]) -> tuple[int, ...]:
            found: tuple[int, ...] = answer["places"]
            if not found:
                raise ValueError("places: name at least one")
            if wrong := [number for number in found if not 1 <= number <= last]:
                raise ValueError(f"places: there is no place {wrong[0]}; they are numbered 1 to {last}")
            return found

        asked = {**inputs, "outline": text, "room": room}
        try:
            made: tuple[int, ...] = program.ask(Inquiry(asked, accept), before=lambda refused: asking(asked, refused))
            return made
        except StageError as error:
            told(f"no places named, so passages are chosen by their words: {error}")
            return ()

    return choose
