"""An engine that answers from a recorded run, and asks nobody."""

import contextvars
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property

from ksflow.errors import BudgetError, ConfigError, StageError
from ksflow.lm.engines import Engine
from ksflow.lm.refusals import LATE, failure
from ksflow.protocols import Recording, call_context, record, reserve
from ksflow.records import Call, Question, digest

Messages = Sequence[Mapping[str, str]]


class Replay(Engine):
    """The recorded calls, each to be had once. Safe for threads.

    Of a session that is replayed, what a call was for (the call context's `about`) decides, and of several for the same
    what was asked: another version asks otherwise, and kernels that are judged anew have other times. Elsewhere only
    the same question is answered.
    """

    price_source = "replay"

    def __init__(self, past: Recording | None) -> None:
        """`past` is the run: its calls are read when the first question is asked. ConfigError without one."""
        if past is None:
            raise ConfigError("model=replay repeats a recorded run: use llm=replay, and recorded.run= for its name")
        self.past = past
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "Replay()"

    def model_of(self, stage: str) -> str:
        """Return the model that answered the recorded calls of a stage."""
        with self._lock:
            return self._models.get(stage, "nobody")

    def first_of(self, stages: Sequence[str]) -> str:
        """Return which of these stages was asked first for what the call context names; "" if none was."""
        purpose = call_context().about
        with self._lock:
            calls = (call for _, call in self._left if call.stage in stages)
            return next((call.stage for call in calls if call.about == purpose or not self.past.session), "")

    def take(self, stage: str, messages: Messages) -> tuple[Call, ...]:
        """Return what came of a question, then an answer that came too late, if any; () if it was not asked."""
        with self._lock:
            asked = _digest(messages)
            outcome = self._pick(stage, asked, late=False)
            if outcome is None:
                return ()
            late = outcome.error.startswith("no answer within") and self._pick(stage, asked, late=True)
            return (outcome, late) if late else (outcome,)

    @cached_property
    def _models(self) -> dict[str, str]:
        return {call.stage: call.model for call in self.past.calls()}

    @cached_property
    def _left(self) -> list[tuple[str, Call]]:
        """Calls that nobody had yet, each with the digest of what was asked."""
        return [(_digest(call.messages), call) for call in self.past.calls()]

    def _pick(self, stage: str, asked: str, late: bool) -> Call | None:
        purpose, best, place = call_context().about, 0, -1
        for index, (question, call) in enumerate(self._left):
            if call.stage == stage and (call.error == LATE) == late:
                fit = (question == asked) + 2 * (call.about == purpose and (question == asked or self.past.session > 0))
                best, place = max((best, place), (fit, index), key=lambda pair: pair[0])
        return self._left.pop(place)[1] if best else None


def replay_call(engine: Replay, stage: str, messages: Messages) -> Call:
    """Return the recorded call of a question, and record it again.

    Raises what the recorded run raised; where it has no such question, BudgetError, or StageError where its kernels
    are judged anew.
    """
    calls = engine.take(stage, messages)
    if not calls and engine.past.judges_anew:
        raise StageError(stage, "the recorded run was not asked for this")
    if not calls:
        why = "it ends here, or stages and settings are others"
        raise BudgetError(f"the recording has no answer to this question of {stage}: {why}")
    first = calls[0]
    cost, source = first.cost, first.price_source
    question = Question(stage, first.model, cost.tokens_in, cost.tokens_out, cost.usd, cost.usd, source or "replay")
    with nullcontext() if source == "cache" else reserve(question):
        record(replace(first, about=""))
    for late in calls[1:]:  # it came when it came: a replay must not wait for that here
        keep = contextvars.copy_context().run
        threading.Thread(target=keep, args=(record, replace(late, about="")), daemon=True).start()
    if first.error:
        raise failure(stage, first.error)
    return first


def _digest(messages: Messages) -> str:
    return digest(json.dumps([[message["role"], message["content"]] for message in messages]))
