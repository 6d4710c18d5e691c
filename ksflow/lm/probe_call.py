"""One question to a model the way a stage asks it: does it answer in the form that stages need, and read all of it?"""

import logging
from dataclasses import dataclass, replace
from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.lm.lengths import lengths
from ksflow.lm.model import Model
from ksflow.lm.program import Inquiry, Program
from ksflow.lm.prompts.brief import count
from ksflow.protocols import override_call
from ksflow.records import Call

_LONGEST_ANSWER = 4000  # tokens: a model that thinks needs some, and this is a question of one line
_PROMPT = 12_000
"""Tokens of the question by the estimate, about 8,000 in truth: stages ask in more, and a server that cuts prompts to a
default of 4,096 is noticed.
"""
_LINE = "This line is filler, as long as a line of code in a prompt; read on, it asks nothing.\n"


class ReadinessSignature(dspy.Signature):  # type: ignore[misc]
    """You are asked whether you can be used. Copy the numbers, and say in a word that you are ready."""

    text: str = dspy.InputField(desc="Some numbers, and many lines to be read past.")
    numbers: list[int] = dspy.OutputField(desc="The numbers of the text, in their order.")
    greeting: str = dspy.OutputField(desc="One word.")


@dataclass(frozen=True)
class Answered:
    """What came of the question."""

    call: Call
    trouble: str  # why the answer could not be read; empty where it could
    notices: tuple[str, ...]  # what the answer's counts and names show to be wrong


def ask(model: Model) -> Answered:
    """Ask once, past the cache. Raises StageError or ConfigError where there is no answer at all."""
    most = min(model.max_tokens or _LONGEST_ANSWER, _LONGEST_ANSWER)
    calls: list[Call] = []
    short = replace(model, cache=False, retries=min(model.retries, 1), max_tokens=most)
    program = Program("llm=check", ReadinessSignature, short, attempts=1)
    log, trouble = logging.getLogger("ksflow.models"), ""
    log.disabled = True  # what is wrong with an answer is in `notices`, and told nowhere else
    try:
        with override_call(record=calls.append):
            room = _PROMPT if model.context_tokens is None else min(_PROMPT, model.context_tokens // 2)
            filler = _LINE * (room // count(_LINE))
            program.ask(Inquiry({"text": f"2, 3 and 5\n{filler}"}, _read))
    except StageError as error:
        if not calls or calls[-1].error:
            raise
        trouble = error.reason.partition(": ")[2] or error.reason
    finally:
        log.disabled = False
    known = lengths(program.model)
    return Answered(calls[-1], trouble, tuple(filter(None, (known.cut, known.other))))


def _read(answer: dict[str, Any]) -> None:
    if answer["numbers"] != [2, 3, 5]:
        raise ValueError(f"the numbers came back as {answer['numbers']}")
