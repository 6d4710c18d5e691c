"""A model names the places in an outline that are worth reading."""

from collections.abc import Callable
from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.lm.program import Inquiry, Program
from ksflow.notes.relevance import Choose


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


def chooser(
    program: Program,
    inputs: dict[str, str],
    warn: Callable[[str], None],
    asking: Callable[[dict[str, str], str], None],
) -> Choose:
    """Asks the model for places; where it gives none, `warn` is told why, and none are named.

    `asking` is told of each attempt: what is asked, and why the answer before was refused. Its StageError ends it.
    """

    def choose(text: str, room: str) -> tuple[int, ...]:
        last = text.count("\n") + 1

        def accept(answer: dict[str, Any]) -> tuple[int, ...]:
            places: tuple[int, ...] = answer["places"]
            if not places:
                raise ValueError("places: name at least one")
            if wrong := [number for number in places if not 1 <= number <= last]:
                raise ValueError(f"places: there is no place {wrong[0]}; they are numbered 1 to {last}")
            return places

        asked = {**inputs, "outline": text, "room": room}
        try:
            return program.ask(Inquiry(asked, accept), before=lambda refused: asking(asked, refused))
        except StageError as error:
            warn(f"no places named, so passages are chosen by their words: {error}")
            return ()

    return choose
