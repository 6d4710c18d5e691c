"""One cheap question to a model the way a stage asks it: does it answer, and in the form that stages need?"""

from dataclasses import dataclass, replace
from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.lm.model import Model
from ksflow.lm.program import Inquiry, Program
from ksflow.protocols import calling
from ksflow.records import Call

_LONGEST_ANSWER = 4000
"""Tokens: a model that thinks needs some, and this is a question of one line."""


class Ready(dspy.Signature):  # type: ignore[misc]
    """You are asked whether you can be used. Copy the numbers, and say in a word that you are ready."""

    text: str = dspy.InputField(desc="Some numbers.")
    numbers: list[int] = dspy.OutputField(desc="The numbers of the text, in their order.")
    greeting: str = dspy.OutputField(desc="One word.")


@dataclass(frozen=True)
class Answered:
    """What came of the question."""

    call: Call
    trouble: str = ""
    """Why the answer could not be read; empty where it could."""


def ask(model: Model) -> Answered:
    """Ask once, past the cache. Raises StageError or ConfigError where there is no answer at all."""
    most = min(model.max_tokens or _LONGEST_ANSWER, _LONGEST_ANSWER)
    calls: list[Call] = []
    short = replace(model, cache=False, retries=min(model.retries, 1), max_tokens=most)
    program = Program("llm=check", Ready, short, attempts=1)
    try:
        with calling(record=calls.append):
            program.ask(Inquiry({"text": "2, 3 and 5"}, _read))
    except StageError as error:
        if not calls or calls[-1].error:
            raise
        return Answered(calls[-1], error.reason.partition(": ")[2] or error.reason)
    return Answered(calls[-1])


def _read(answer: dict[str, Any]) -> None:
    if answer["numbers"] != [2, 3, 5]:
        raise ValueError(f"the numbers came back as {answer['numbers']}")
