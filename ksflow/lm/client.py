"""A model as a `dspy.LM`: what DSPy's modules and optimisers ask. What happens to a question is in `call`."""

import json
import os
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
from dspy.lm15 import LM15Error, Message, Request, Response, request_from_openai_chat

from ksflow import home
from ksflow.errors import UNREADABLE, ConfigError
from ksflow.lm.call import Complete, Messages, ModelCall, text_of
from ksflow.lm.connection import engine_of, generation_of, mark, takes_marks
from ksflow.lm.dspy_seams import request_to_dict, response_from_dict, response_to_dict
from ksflow.lm.engines import as_response
from ksflow.lm.model import Model
from ksflow.lm.replay import Replay, replay_call
from ksflow.protocols import override_call
from ksflow.records import digest
from ksflow.redaction import redact

_complete: ContextVar[Complete] = ContextVar("complete")  # what answers the question at hand


class MeteredLM(dspy.LM):  # type: ignore[misc]
    """A `dspy.LM` whose every call is metered, kept to the model's deadline and rate limits, and recorded.

    `label` is what its calls are recorded under: the stage and its variant. `copy(label=..., rollout_id=...)` makes
    another one with the same connection. A call raises StageError, BudgetError or ConfigError, never LMError.
    """

    def __init__(self, owner: Model) -> None:
        """`owner` is the configured model. Connects to nothing yet. ConfigError when it cannot be as configured."""
        self.owner, self.label = owner, "dspy"
        self.volatile = ""  # the beginning of a question's part that no other shares; empty where nobody knows
        self.refused = ""  # why the answer before was not accepted: the question ends with it
        self.shown = ""  # what an earlier answer asked to see: it comes after the question
        self.last: ModelCall | None = None  # the newest call; ask a copy of your own for it
        self._answers = Path(os.environ.get("DSPY_CACHEDIR") or home.cache("dspy"))
        settings = {"temperature": owner.temperature, "max_tokens": owner.max_tokens, "cache": owner.cache}
        try:
            self.provider_engine, self.config = engine_of(owner), generation_of(owner)
            super().__init__(owner.model, num_retries=0, engine=_Asked(), **settings)
            if self.config.get("extensions"):  # DSPy looks at them when it is asked: so ask it for nothing
                asked = self._request([{"role": "user", "content": "?"}], {})
                self._answered(asked, lambda request: as_response(request, "-"))
        except (dspy.LMError, LM15Error, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(redact(f"{owner.model} cannot be used as configured: {reason}")) from error

    def __call__(self, prompt: Any = None, *, messages: Any = None, **settings: Any) -> Any:
        """One answer: a list with its text, or for a `dspy.lm15.Request` a Response, as `dspy.LM` gives it."""
        if isinstance(prompt, Request):
            system: Messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
            sent = [*system, *({"role": each.role, "content": each.text or ""} for each in prompt.messages)]
        else:
            sent = self._continued(list(messages) if messages else [{"role": "user", "content": str(prompt)}])
        most = self.kwargs.get("max_tokens")  # this copy's limit of answers
        model = self.owner if most == self.owner.max_tokens else replace(self.owner, max_tokens=most)
        self.last = call = ModelCall(self.label, model, sent, self.provider_engine)
        with override_call(stage=self.label):
            if isinstance(self.owner.engine, Replay):
                recorded = replay_call(self.owner.engine, self.label, call.messages)
                call.cut, text = recorded.cut, recorded.answer
                response = as_response(Request(model=self.model, messages=(Message.user("-"),)), text)
            else:
                cached = settings.pop("cache", self.cache)
                rollout_id = settings.pop("rollout_id", self.kwargs.get("rollout_id"))
                request = prompt if isinstance(prompt, Request) else self._request(sent, settings)
                call.place = self._place(request, rollout_id) if cached else None

                def through_dspy(complete: Complete) -> Response:
                    stored = _read_answer(call.place) if call.place else None
                    answered = self._answered(request, (lambda request: stored) if stored else complete)
                    if call.place and not stored:
                        _write_answer(call.place, answered)
                    return answered

                response = call.obtain_answer(through_dspy)
                text = text_of(response)
        return response if isinstance(prompt, Request) else [text]

    def _continued(self, sent: Messages) -> Messages:
        """The messages, the question with what the model asked to see and why the answer before was refused."""
        if not (self.shown or self.refused):
            return sent
        shown = f"\n\nYour previous answer asked to see more. Here are {self.shown}" if self.shown else ""
        refused = f"\n\nYour previous answer was refused: {self.refused}" if self.refused else ""
        again = f"{shown}{refused}\nAnswer {'again' if refused else 'now'}, complete and in the format asked for."
        return [*sent[:-1], {**sent[-1], "content": sent[-1]["content"] + again}]

    def _answered(self, request: Request, complete: Complete) -> Response:
        """What an engine answers, as `dspy.LM` asks one. Its cache, which others share, has no part in it."""
        token = _complete.set(complete)
        try:
            with dspy.context(disable_history=True, send_stream=None):
                response: Response = super().__call__(request, cache=False)
        finally:
            _complete.reset(token)
        return response

    def copy(self, **kwargs: Any) -> "MeteredLM":
        """The same connection with other settings; a temperature only where the model takes one."""
        if self.owner.temperature is None:
            kwargs.pop("temperature", None)
        copy: MeteredLM = super().copy(**kwargs)
        return copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "MeteredLM":
        """Itself: optimisers copy the programs that hold it, and a connection is shared."""
        return self

    def _request(self, sent: Messages, settings: dict[str, Any]) -> Request:
        asked = {**self.kwargs, **settings, **({} if self.owner.temperature is not None else {"temperature": None})}
        body = {name: value for name, value in asked.items() if name not in ("rollout_id", "n") and value is not None}
        *before, question = sent
        shared, header, rest = str(question["content"]).rpartition(self.volatile or "\0")
        marked = bool(shared) and takes_marks(self.owner)  # where the question begins to differ from others
        if marked:
            sent = [*before, {**question, "content": shared}, {**question, "content": header + rest}]
        request = request_from_openai_chat({"model": self.model, "messages": sent, **body})
        config = mark(self.owner, self.config, len(request.messages)) if marked else self.config
        return replace(request, config=replace(request.config, **config)) if config else request

    def _place(self, request: Request, rollout_id: int | None) -> Path:
        """The file of the answer to a request: of this server and engine, which a request does not name, and of this
        sample. `dspy.cache`, which models share that a person asks, stays as it was found.
        """
        rollout = int(digest(self.owner.identity, str(rollout_id or 0), digits=12), 16)
        name = digest(json.dumps([request_to_dict(request), rollout], sort_keys=True, default=str), digits=64)
        return self._answers / name[:2] / f"{name}.json"


def _read_answer(path: Path) -> Response | None:
    """The answer that is kept there; None where none can be read."""
    with suppress(*UNREADABLE):
        answer: Response = response_from_dict(json.loads(path.read_bytes()))
        return answer
    return None


def _write_answer(path: Path, response: Response) -> None:
    """Keep an answer, if that can be done."""
    with suppress(*UNREADABLE):
        text = json.dumps(response_to_dict(response))
        path.parent.mkdir(parents=True, exist_ok=True)
        home.write(path, text)


class _Asked:
    """The engine that DSPy knows. Other ways to a model (`forward`) are neither metered nor recorded: ConfigError."""

    def complete(self, request: Request) -> Response:
        complete = _complete.get(None)
        if complete is None:
            raise ConfigError("this model is asked by calling it: other ways are neither metered nor recorded")
        return complete(request)
