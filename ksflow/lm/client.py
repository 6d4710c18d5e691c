"""DSPy's side of a model: the connection, its cache, and the record of every call.

Whoever calls a client, a stage or one of DSPy's optimisers, is metered, kept to the model's deadline and rate limits,
and finds the call in the transcript before anything looks at its answer. `dspy.inspect_history` shows the last of them.
"""

import contextvars
import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import dspy
from dspy.clients.lm15_boundary import history_messages
from dspy.lm15 import LM15Error, Request
from dspy.utils.exceptions import LMError

from ksflow.errors import ConfigError, StageError
from ksflow.home import cache as cache_path
from ksflow.lm import attempt as attempts
from ksflow.lm.attempt import LATE, Attempt, Filtered, Leave
from ksflow.lm.history import KEPT, bound, shown
from ksflow.lm.limits import Pass, window
from ksflow.lm.line import Line
from ksflow.lm.model import Model
from ksflow.lm.prices import paid, tokens
from ksflow.lm.refusals import filtered, refusal
from ksflow.lm.replay import Replay, replayed
from ksflow.protocols import SIGN_OF_LIFE, admit, transcribe
from ksflow.records import Call, Cost, Permit, Question

T = TypeVar("T")
_MEMORY = 64  # answers DSPy keeps in memory; the disk has them all
_configuring = threading.Lock()


class Client(dspy.LM):  # type: ignore[misc]
    """A `dspy.LM` whose every call is metered, kept to the model's deadline, and recorded.

    `label` is what its calls are recorded under: the stage and its variant. `copy(label=..., rollout_id=...)` makes
    another client with the same connection. A call raises StageError, BudgetError or ConfigError, never LMError.
    """

    def __init__(self, owner: Model) -> None:
        """`owner` is the configured model. Raises what DSPy and lm15 raise where it cannot be as configured."""
        self.owner, self.label = owner, "dspy"
        self.last: Attempt | None = None
        """The newest call of this client; ask a copy of your own for it."""
        settings = {"temperature": owner.temperature, "max_tokens": owner.max_tokens, "cache": owner.cache}
        super().__init__(owner.model, num_retries=owner.retries, engine=Line(owner), **settings)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """One answer, as `dspy.LM` gives it."""
        self.last = attempt = Attempt(self.label, self.owner, _sent(prompt, messages))
        if isinstance(self.owner.engine, Replay):
            answer = replayed(attempt, self.owner.engine)
            self.update_history({"messages": attempt.sent, "outputs": [answer], "kwargs": {}, "model": self.model})
            return [answer]
        if self.owner.temperature is None:
            kwargs.pop("temperature", None)
        kwargs["rollout_id"] = self._sample(kwargs.get("rollout_id", self.kwargs.get("rollout_id")))
        kept = 0 if dspy.settings.disable_history else min(KEPT, dspy.settings.max_history_size)
        call = partial(super().__call__, prompt, messages=messages, **kwargs)

        def question() -> Any:
            with dspy.context(disable_history=False, max_history_size=kept):
                return call()

        return ask(attempt, question)

    def copy(self, **kwargs: Any) -> "Client":
        """The same client with other settings; a temperature only where the model takes one."""
        if self.owner.temperature is None:
            kwargs.pop("temperature", None)
        made: Client = super().copy(**kwargs)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "Client":
        """Itself: optimisers copy the programs that hold it, and a connection is shared."""
        return self

    def update_history(self, entry: dict[str, Any]) -> None:
        """DSPy calls it after every answer and before the adapter parses it."""
        attempt = attempts.current()
        if attempt is not None and not attempt.export_winner(entry):
            with suppress(Exception):  # the run may be over; the answer stays in the cache
                transcribe(_answer(attempt, entry, LATE))
        if dspy.settings.max_history_size and not dspy.settings.disable_history:
            told = {"timestamp": datetime.now().isoformat(), **shown(entry, self.owner.redact)}
            super().update_history(told)
            bound(told)

    def _sample(self, rollout_id: int | None) -> int:
        """DSPy's cache key has neither the server nor the engine: this part of it stands for both."""
        text = f"{self.owner.identity}\0{rollout_id or 0}"
        return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:6], "big")

    def _warn_zero_temp_rollout(self, temperature: float | None, rollout_id: int | None) -> None:
        """Quiet: a rollout id also tells servers apart, which holds at temperature 0 too."""


def _sent(prompt: Any, messages: Any) -> list[dict[str, Any]]:
    """What a call asks, as messages."""
    if isinstance(prompt, Request):
        return list(history_messages(prompt))
    return list(messages) if messages else [{"role": "user", "content": str(prompt)}]


def connect(model: Model) -> Client:
    """The client of a model. Connects to nothing yet. ConfigError when it cannot be as configured."""
    if model.cache and not isinstance(model.engine, Replay):
        _use_own_cache(os.environ.get("DSPY_CACHEDIR") or str(cache_path("dspy")))
    try:
        return Client(model)
    except (LMError, LM15Error, ValueError, TypeError) as error:
        said = " ".join(str(error).split())
        raise ConfigError(model.redact(f"{model.model} cannot be used as configured: {said}")) from error


def ask(attempt: Attempt, question: Callable[[], T]) -> T:
    """The answer to `question`, which calls the attempt's client.

    StageError after the deadline, or when the provider fails; ConfigError for what no retry mends; BudgetError from
    the meter. A provider's own time limit is per read: an answer that drips never meets it. So another thread waits
    for the provider, and is left behind if need be; leave is given and the transcript is written in this one.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()
    context.run(attempts.enter, attempt)

    def work() -> None:
        try:
            future.set_result(context.run(question))
        except BaseException as error:  # handed over, not handled  # noqa: BLE001
            future.set_exception(error)
        attempt.entries.put(None)

    threading.Thread(target=work, daemon=True, name=f"ask {attempt.model.model}").start()
    with _Desk(attempt) as desk:
        desk.serve()
        if attempt.refused:
            raise Filtered(attempt.stage, attempt.refused)
        try:
            return future.result()
        except LMError as error:
            refused = refusal(attempt, error)
            attempt.failed(refused)
            raise refused from error


def greet(model: Model) -> None:
    """One short question, never answered from the cache. Any answer will do, a refused or an empty one too."""
    client = model.client.copy(label=SIGN_OF_LIFE)
    with suppress(Filtered):
        client("Are you there? Answer with one word.", cache=False)


class _Desk:
    """The asking thread's side of an attempt: gives leave, keeps the transcript, watches the deadline."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._held = ExitStack()
        self._permit: Permit | None = None
        self._place: Pass | None = None
        self._window = window(attempt.model)

    def __enter__(self) -> "_Desk":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        attempt = self._attempt
        with attempt.lock:
            attempt.left = True
        if not attempt.lost:
            self._settle(attempt.tokens_in)
        if self._permit is not None:
            self._permit.lost = self._permit.lost or attempt.lost or not attempt.done
            self._permit.transcribed = attempt.done
        return self._held.__exit__(kind, error, trace)

    def serve(self) -> None:
        """Until the question is over. StageError after the deadline."""
        while (entry := self._next()) is not None:
            if isinstance(entry, Leave):
                self._give(entry)
            else:
                self._attempt.keep(self._record(entry))
                self._attempt.kept.set()

    def _next(self) -> Leave | Mapping[str, Any] | None:
        attempt = self._attempt
        try:
            return attempt.entries.get(timeout=attempt.left_s)
        except queue.Empty:
            pass
        with attempt.lock:
            with suppress(queue.Empty):  # at the last moment
                entry = attempt.entries.get_nowait()
                if not isinstance(entry, Leave):
                    return entry
            attempt.left = True
        error = StageError(attempt.stage, f"no answer within {attempt.model.deadline_s:g} s")
        attempt.failed(error)
        raise error

    def _give(self, leave: Leave) -> None:
        """Once there is money for a try and room under the rate limits."""
        attempt = self._attempt
        started = time.monotonic()
        if self._permit is not None and attempt.lost:
            self._permit.lost = True
            self._held.close()
            self._permit = None
        question = attempt.question()
        if self._permit is None:
            self._permit = self._held.enter_context(admit(question))
        self._pace(question)
        attempt.waited_s += time.monotonic() - started if attempt.live else attempt.elapsed_s
        attempt.live = attempt.lost = True
        leave.given.set()

    def _pace(self, question: Question) -> None:
        model = self._attempt.model
        self._settle(question.tokens_in)  # all that a try before this one took
        most = question.tokens_in + question.tokens_out
        self._place = self._window.enter(most, model.requests_per_minute, model.tokens_per_minute)

    def _settle(self, tokens: int) -> None:
        if self._place is not None:
            self._window.settle(self._place, tokens)
            self._place = None

    def _record(self, entry: Mapping[str, Any]) -> Call:
        """Of a finished call. Its place under the rate limits shrinks to what it took."""
        call = _answer(self._attempt, entry)
        self._settle(call.cost.tokens_in + call.cost.tokens_out or self._attempt.tokens_in)
        return call


def _answer(attempt: Attempt, entry: Mapping[str, Any], error: str = "") -> Call:
    """What DSPy says of a finished call, as a record."""
    response = entry["response"]
    attempt.cut = response.finish_reason == "length"
    attempt.refused = attempt.model.redact(filtered(response))
    cost, source = Cost(wall_s=attempt.elapsed_s), "cache"
    if attempt.live:
        usd, source = paid(attempt.model, response)
        calls = 0 if error == LATE else 1  # a call whose answer is late is in the transcript already
        cost = Cost(usd, *tokens(attempt.model, response), calls=calls, wall_s=attempt.elapsed_s)
    return attempt.call(_text(entry["outputs"]), error or attempt.refused, cost=cost, price_source=source)


def _use_own_cache(path: str) -> None:
    with _configuring:
        if getattr(dspy.cache, "disk_cache_dir", None) != path:
            dspy.configure_cache(disk_cache_dir=path, memory_max_entries=_MEMORY, restrict_pickle=True)


def _text(outputs: list[Any]) -> str:
    first = outputs[0] if outputs else ""
    return str((first.get("text") if isinstance(first, dict) else first) or "")
