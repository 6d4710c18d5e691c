"""A model call that one can follow: from a question to its record, all in the thread of whoever asks.

    stage -> Program.ask -> dspy.Predict, which lays the question out -> MeteredLM -> the answer, to be parsed

`MeteredLM.__call__` makes a `_Call` and lets it run:

1. The question becomes a `dspy.lm15.Request`. `dspy.LM(engine=...)` looks for its answer in DSPy's cache.
2. It is not there: DSPy calls `_Call.complete`, the engine. For each try it
   a. reserves what the call may cost (`protocols.reserve`), which waits for room under the caps;
   b. waits for room under the provider's rate limits;
   c. has the provider asked in a thread that may be left behind, for what is left of the deadline;
   d. after an error that may pass, waits as long as the provider says, else 1, 2, 4 ... 60 s, and begins again.
3. The answer, or why there is none, is recorded (`protocols.record`) before anything looks at it.
4. The reservation ends; what nobody knows the charge of stays reserved.
5. An answer that comes after the deadline is recorded and cached too, for whoever asks again.
"""

import contextvars
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import dspy
from dspy.lm15 import (
    RETRYABLE_ERRORS,
    LM15Error,
    Message,
    ProviderError,
    Request,
    Response,
    ServerError,
    StreamAssemblyError,
    TextPart,
    TimeoutError,
    TransportError,
    request_from_openai_chat,
)

from ksflow import home
from ksflow.errors import BudgetError, ConfigError, KsflowError, StageError
from ksflow.lm.connection import connect
from ksflow.lm.engines import as_response
from ksflow.lm.history import remember
from ksflow.lm.limits import Slot, rate_limiter
from ksflow.lm.model import Model
from ksflow.lm.prices import paid, price, tokens
from ksflow.lm.refusals import LATE, NEVER_CONNECTED, Filtered, caused_by, filtered, refusal, told
from ksflow.lm.replay import Replay, replayed
from ksflow.protocols import SIGN_OF_LIFE, calling, record, reserve
from ksflow.records import Call, Cost, Question, Reservation

Messages = list[dict[str, Any]]
LONGEST_ANSWER = 32_000
"""Tokens that an answer may have, to reckon with, where `max_tokens` leaves it to the provider."""
_BYTES_PER_TOKEN = 3  # of code and English it is nearer 4: an estimate that rather has too many
_LONGEST_PAUSE_S = 60.0
_GRACE_S = 1.0  # after the deadline an engine may give up too: whoever asks is told first
_IN_MEMORY = 64  # answers that DSPy keeps in memory; the disk has them all
_configuring = threading.Lock()


class MeteredLM(dspy.LM):  # type: ignore[misc]
    """A `dspy.LM` whose every call is metered, kept to the model's deadline and rate limits, and recorded.

    `label` is what its calls are recorded under: the stage and its variant. `copy(label=..., rollout_id=...)` makes
    another one with the same connection. A call raises StageError, BudgetError or ConfigError, never LMError.
    """

    def __init__(self, owner: Model) -> None:
        """`owner` is the configured model. Connects to nothing yet. ConfigError when it cannot be as configured."""
        self.owner, self.label = owner, "dspy"
        self.last: _Call | None = None
        """The newest call; ask a copy of your own for it."""
        if owner.cache and not isinstance(owner.engine, Replay):
            _use_own_cache(os.environ.get("DSPY_CACHEDIR") or str(home.cache("dspy")))
        settings = {"temperature": owner.temperature, "max_tokens": owner.max_tokens, "cache": owner.cache}
        try:
            self.provider_engine, self.config = connect(owner)
            super().__init__(owner.model, num_retries=0, engine=_Refusing(), **settings)
            if self.config.get("extensions"):  # DSPy looks at them when it is asked: so ask it for nothing
                dspy.LM(owner.model, engine=_Given("-"), cache=False)(self._request(_messages("?", None), {}))
        except (dspy.LMError, LM15Error, ValueError, TypeError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(owner.redact(f"{owner.model} cannot be used as configured: {said}")) from error

    def __call__(self, prompt: Any = None, *, messages: Any = None, **settings: Any) -> Any:
        """One answer: a list with its text, or for a `dspy.lm15.Request` a Response, as `dspy.LM` gives it."""
        sent = _messages(prompt, messages)
        self.last = call = _Call(self.label, self.owner, sent, self.provider_engine)
        with calling(stage=self.label):
            if isinstance(self.owner.engine, Replay):
                recorded = replayed(self.owner.engine, self.label, call.as_record().messages)
                call.cut, text = recorded.cut, recorded.answer
                response = _Given(text).complete(Request(model=self.model, messages=(Message.user("-"),)))
            else:
                call.cached = settings.pop("cache", self.cache)
                call.rollout_id = self._rollout(settings.pop("rollout_id", self.kwargs.get("rollout_id")))
                call.request = prompt if isinstance(prompt, Request) else self._request(sent, settings)
                response = call.answered()
                text = _text(response)
        remember(self, sent, text, self.owner.redact)
        return response if isinstance(prompt, Request) else [text]

    def copy(self, **kwargs: Any) -> "MeteredLM":
        """The same connection with other settings; a temperature only where the model takes one."""
        if self.owner.temperature is None:
            kwargs.pop("temperature", None)
        made: MeteredLM = super().copy(**kwargs)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "MeteredLM":
        """Itself: optimisers copy the programs that hold it, and a connection is shared."""
        return self

    def _request(self, sent: Messages, settings: dict[str, Any]) -> Request:
        asked = {**self.kwargs, **settings, **({} if self.owner.temperature is not None else {"temperature": None})}
        body = {name: value for name, value in asked.items() if name not in ("rollout_id", "n") and value is not None}
        made = request_from_openai_chat({"model": self.model, "messages": sent, **body})
        return replace(made, config=replace(made.config, **self.config)) if self.config else made

    def _rollout(self, rollout_id: int | None) -> int:
        """DSPy's cache key has neither the server nor the engine: this part of it stands for both."""
        text = f"{self.owner.identity}\0{rollout_id or 0}"
        return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:6], "big")


class _Call:
    """One question on its way to its record; the engine that DSPy calls where its cache has no answer."""

    def __init__(self, stage: str, model: Model, sent: Messages, provider: Any) -> None:
        self.stage, self.model, self.sent, self.provider = stage, model, sent, provider
        self.request: Request | None = None
        self.rollout_id, self.cached = 0, False
        self.cut = False
        """The provider stopped at its token limit."""
        self._started, self._waited_s = time.monotonic(), 0.0
        self._asked = False
        """A provider was asked: the answer is not out of the cache."""
        self._lost = False
        """A try is on its way, or broke off: nobody knows whether it will be charged."""
        self._recorded = False
        self._held = ExitStack()
        self._reservation: Reservation | None = None
        self._limiter = rate_limiter(model)
        self._slot: Slot | None = None
        self._late: Future[Response] | None = None
        """What the provider is asked for, until it has answered."""

    def answered(self) -> Response:
        """The answer, recorded. StageError after the deadline, when the provider fails, or for a refusal (Filtered);
        ConfigError for what no retry mends; BudgetError where it cannot be paid.
        """
        try:
            response = self._through_dspy(self)
            refused = self._keep_answer(response)
        except dspy.LMError as error:
            cause = error.__cause__
            if isinstance(cause, KsflowError) and (isinstance(cause, BudgetError) or not self._asked):
                raise cause from None  # of the reservation: nothing was asked
            failed = refusal(error, self.stage, self.model, self.tokens_in)
            self._keep(self.as_record(error=told(failed), cost=Cost(calls=1, wall_s=self.elapsed_s)))
            raise failed from (None if failed is cause else error)
        finally:
            self._release()
        if refused:
            raise Filtered(self.stage, refused)
        return response

    def complete(self, request: Request) -> Response:
        """For DSPy, which has no answer in its cache: tries until there is one. What it raises is lm15's or ours."""
        attempt = 0
        while True:
            self._admit()
            try:
                return self._try(request)
            except RETRYABLE_ERRORS as error:
                if attempt >= self.model.retries:
                    raise
                self._pause(error.retry_after, attempt)
            attempt += 1

    # -- one try -------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Return once there is money for a try and room under the rate limits. This time counts to no deadline."""
        began = time.monotonic() if self._asked else self._started
        if self._lost and self._reservation is not None:
            self._reservation.lost = True
            self._held.close()
            self._reservation = None
        question = self.question()
        if self._reservation is None:
            self._reservation = self._held.enter_context(reserve(question))
        self._settle(question.tokens_in)  # all that a try before this one took
        most = question.tokens_in + question.tokens_out
        self._slot = self._limiter.enter(most, self.model.requests_per_minute, self.model.tokens_per_minute)
        self._waited_s += time.monotonic() - began

    def _try(self, request: Request) -> Response:
        self._asked = self._lost = True
        try:
            response = self._in_time(request)
        except (StreamAssemblyError, json.JSONDecodeError) as error:
            raise TransportError(f"the answer broke off: {error}") from error
        except TransportError as error:
            self._lost = not caused_by(error, *NEVER_CONNECTED)
            if caused_by(error, "ReadTimeout"):
                raise TimeoutError("the connection was silent for longer than timeout_s") from error
            raise
        except ProviderError as error:
            garbled = type(error) is ProviderError and error.status is not None and error.status < 400
            self._lost = garbled or isinstance(error, TimeoutError)
            if garbled:
                raise ServerError(error.message, status=error.status, provider=error.provider) from error
            raise
        except Exception:
            self._lost = self._late is not None
            raise
        self._lost = False
        return response

    def _in_time(self, request: Request) -> Response:
        """What the provider answers. A provider's own time limit is per read, and an answer that drips never meets it:
        so another thread waits for it, and is left behind at the deadline. StageError then.
        """
        left_s = self._left_s()
        if left_s is None:
            response: Response = self.provider.complete(request)
            return response
        self._late = future = Future[Response]()
        with calling(until=time.monotonic() + left_s + _GRACE_S):
            context = contextvars.copy_context()
        work = (_fulfil, future, self.provider.complete, request)
        threading.Thread(target=context.run, args=work, daemon=True, name=f"ask {self.model.model}").start()
        if not wait([future], left_s).done:
            raise self._too_late()
        self._late = None
        return future.result()

    def _left_s(self) -> float | None:
        """Until the deadline; None when there is none."""
        deadline_s = self.model.deadline_s
        return None if deadline_s is None else max(0.0, deadline_s + self._waited_s - self.elapsed_s)

    def _too_late(self) -> StageError:
        return StageError(self.stage, f"no answer within {self.model.deadline_s:g} s")

    def _pause(self, hint_s: float | None, attempt: int) -> None:
        """Wait before the next try. StageError where the deadline would come first."""
        pause_s = hint_s if hint_s is not None and hint_s >= 0 else min(2.0**attempt, _LONGEST_PAUSE_S)
        left_s = self._left_s()
        if left_s is not None and pause_s >= left_s:
            raise self._too_late()
        time.sleep(pause_s)

    # -- its record ----------------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Since it was asked."""
        return time.monotonic() - self._started

    @property
    def tokens_in(self) -> int:
        """Of the prompt, estimated."""
        size = sum(len(str(message["content"]).encode("utf-8", "replace")) + 12 for message in self.sent)
        return size // _BYTES_PER_TOKEN

    def question(self) -> Question:
        """What it may cost."""
        tokens_in, tokens_out = self.tokens_in, self.model.max_tokens or LONGEST_ANSWER
        rate = price(self.model, tokens_in)
        if rate is None:
            return Question(self.stage, self.model.model, tokens_in, tokens_out)
        usd_in = tokens_in * rate.usd_in
        most = usd_in + tokens_out * rate.usd_out
        return Question(self.stage, self.model.model, tokens_in, tokens_out, usd_in, most, rate.source)

    def as_record(self, answer: str = "", error: str = "", **spent: Any) -> Call:
        """The record of it, without secrets."""
        model, redact = self.model, self.model.redact
        messages = tuple({"role": str(each["role"]), "content": redact(str(each["content"]))} for each in self.sent)
        return Call(
            self.stage,
            model.model,
            messages,
            redact(answer),
            redact(error),
            cut=self.cut,
            settings=model.settings,
            **spent,
        )

    def _keep_answer(self, response: Response, error: str = "") -> str:
        """Record an answer. What a safety filter said instead of one; empty where none did."""
        self.cut = response.finish_reason == "length"
        refused = self.model.redact(filtered(response))
        cost, source = Cost(wall_s=self.elapsed_s), "cache"
        if self._asked:
            usd, source = paid(self.model, response)
            calls = 0 if error == LATE else 1  # a call whose answer is late is in the transcript already
            cost = Cost(usd, *tokens(self.model, response), calls=calls, wall_s=self.elapsed_s)
            self._settle(cost.tokens_in + cost.tokens_out or self.tokens_in)
        self._keep(self.as_record(_text(response), error or refused, cost=cost, price_source=source))
        return refused

    def _keep(self, call: Call) -> None:
        record(call)
        self._recorded = True

    def _settle(self, tokens: int) -> None:
        """The newest try had so many tokens, as far as the rate limits are concerned."""
        if self._slot is not None:
            self._limiter.settle(self._slot, tokens)
            self._slot = None

    def _release(self) -> None:
        if not self._lost:
            self._settle(self.tokens_in)
        if self._reservation is not None:
            self._reservation.lost = self._reservation.lost or self._lost or not self._recorded
            self._reservation.recorded = self._recorded
        self._held.close()
        if self._late is not None:
            self._late.add_done_callback(self._keep_late)

    def _keep_late(self, future: "Future[Response]") -> None:
        """In the provider's thread, once there is an answer that nobody waits for: what it cost is true."""
        with suppress(Exception):  # it failed, or the run is over
            self._keep_answer(future.result(), LATE)
            self._through_dspy(_Given(future.result()))

    def _through_dspy(self, engine: Any) -> Response:
        """What DSPy's cache has, else the engine's answer, which it keeps."""
        line = dspy.LM(self.model.model, engine=engine, cache=self.cached, num_retries=0)
        with dspy.context(disable_history=True):
            response: Response = line(self.request, rollout_id=self.rollout_id)
        return response


class _Refusing:
    """The engine behind DSPy's other ways to a model (`forward`), where nobody meters and records."""

    def complete(self, request: Request) -> Response:
        raise ConfigError("this model is asked by calling it: other ways are neither metered nor recorded")


class _Given:
    """An engine that has its answer already."""

    def __init__(self, answer: Response | str) -> None:
        self._answer = answer

    def complete(self, request: Request) -> Response:
        if isinstance(self._answer, Response):
            return self._answer
        return as_response(request, self._answer)


def greet(model: Model) -> None:
    """One short question, never answered from the cache. Any answer will do, a refused or an empty one too."""
    with suppress(Filtered):
        model.client.copy(label=SIGN_OF_LIFE)("Are you there? Answer with one word.", cache=False)


def _fulfil(future: "Future[Response]", complete: Callable[[Request], Response], request: Request) -> None:
    try:
        future.set_result(complete(request))
    except BaseException as error:  # handed over, not handled  # noqa: BLE001
        future.set_exception(error)


def _messages(prompt: Any, messages: Any) -> Messages:
    """What a call asks, as messages."""
    if isinstance(prompt, Request):
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        return [*system, *({"role": each.role, "content": each.text or ""} for each in prompt.messages)]
    return list(messages) if messages else [{"role": "user", "content": str(prompt)}]


def _text(response: Response) -> str:
    return "".join(part.text for part in response.message.parts if isinstance(part, TextPart))


def _use_own_cache(path: str) -> None:
    with _configuring:
        made = vars(dspy).get("cache")  # asking DSPy for one would first make its own in the home folder
        if getattr(made, "disk_cache_dir", None) != path:
            dspy.configure_cache(disk_cache_dir=path, memory_max_entries=_IN_MEMORY, restrict_pickle=True)
