"""DSPy's side of a model: the connection, its cache, and the record of every call.

A finished call reaches the transcript before anything looks at its answer. DSPy's own histories
stay empty: they would keep every prompt of a run in memory.
"""

import contextvars
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

# The prices that ship with DSPy; otherwise the first call fetches a list from GitHub.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import dspy
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMAuthError,
    LMBillingError,
    LMConfigurationError,
    LMError,
    LMRateLimitError,
    LMTimeoutError,
    LMTransportError,
    LMUnsupportedFeatureError,
    LMUnsupportedModelError,
)

from ksflow.errors import ConfigError, KsflowError, StageError
from ksflow.home import cache as cache_path
from ksflow.protocols import transcribe
from ksflow.records import Call, Cost
from ksflow.stages.lm.model import Model

T = TypeVar("T")
Messages = list[dict[str, Any]]
_MEMORY = 64  # answers DSPy keeps in memory; the disk has them all


@dataclass
class Attempt:
    """One question to a model, from the moment it is asked to its entry in the transcript."""

    stage: str
    model: Model
    started: float = field(default_factory=time.monotonic)
    sent: Messages = field(default_factory=list)
    """What was asked, known once it is formatted."""
    done: bool = False
    """It is in the transcript."""
    left: bool = False
    """Nobody listens any more. What comes later is dropped, but stays in the cache."""
    cut: bool = False
    """The provider stopped at its token limit."""
    entries: queue.SimpleQueue[dict[str, Any] | None] = field(default_factory=queue.SimpleQueue)
    """What DSPy says of a finished call; None when all is over."""
    kept: threading.Event = field(default_factory=threading.Event)
    """The entry is in the transcript."""

    def hand_over(self, entry: dict[str, Any]) -> None:
        """From the thread that talks to the provider; returns once the asking thread has kept the entry."""
        self.entries.put(entry)
        while not (self.left or self.kept.wait(1.0)):
            pass

    def answered(self, entry: dict[str, Any]) -> None:
        """Keep what DSPy says of a finished call."""
        usage = entry["usage"] or {}
        cost = Cost(
            usd=(entry["cost"] or 0.0) if usage else 0.0,
            tokens_in=usage.get("prompt_tokens") or 0,
            tokens_out=usage.get("completion_tokens") or 0,
            calls=1 if usage else 0,
            wall_s=self.elapsed,
        )
        self.cut = getattr(entry["response"], "finish_reason", "") == "length"
        self._keep(_text(entry["outputs"]), cost=cost, price_source=_price_source(entry))

    def failed(self, error: str) -> None:
        """Keep that there was no answer."""
        if not self.done:
            self._keep(error=error, cost=Cost(calls=1, wall_s=self.elapsed))

    @property
    def elapsed(self) -> float:
        """Seconds since it was asked."""
        return time.monotonic() - self.started

    def _keep(self, answer: str = "", error: str = "", **spent: Any) -> None:
        self.done = True
        redact = self.model.redact
        messages = tuple(
            {"role": str(message["role"]), "content": redact(str(message["content"]))} for message in self.sent
        )
        transcribe(Call(self.stage, self.model.model, messages, redact(answer), redact(error), **spent))


_attempt: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar("attempt", default=None)


class Client(dspy.LM):  # type: ignore[misc]
    """`dspy.LM` that tells the current attempt of each finished call, and remembers nothing."""

    def update_history(self, entry: dict[str, Any]) -> None:
        """DSPy calls it after every answer and before the adapter parses it."""
        attempt = _attempt.get()
        if attempt is not None:
            attempt.hand_over(entry)

    def _warn_zero_temp_rollout(self, temperature: float | None, rollout_id: int | None) -> None:
        """Quiet: a rollout id also tells servers apart, which holds at temperature 0 too."""


def connect(model: Model) -> Client:
    """The client of a model. Connects to nothing yet."""
    _use_own_cache(os.environ.get("DSPY_CACHEDIR") or str(cache_path("dspy")))
    connection = {
        # Never a key from the environment for a server of the user's own.
        "api_key": model.api_key or ("none" if model.api_base else None),
        "api_base": model.api_base,
        "timeout": model.timeout_s if isinstance(model.engine, str) else None,
    }
    try:
        return Client(
            model.model,
            temperature=model.temperature,
            max_tokens=model.max_tokens,
            cache=model.cache,
            num_retries=model.retries,
            engine=model.engine,
            **{name: value for name, value in connection.items() if value is not None},
            **(model.options or {}),
        )
    except (LMError, ValueError, TypeError) as error:
        raise ConfigError(model.redact(f"{model.model}: {error}")) from error


def ask(attempt: Attempt, question: Callable[[], T]) -> T:
    """The answer to `question`, which calls the attempt's client. StageError after the deadline.

    A provider's own time limit is per read: an answer that drips never meets it. So another thread waits for
    the provider, and is left behind if need be; the transcript is written in this one.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()
    context.run(_attempt.set, attempt)

    def work() -> None:
        try:
            future.set_result(context.run(question))
        except BaseException as error:  # handed over, not handled  # noqa: BLE001
            future.set_exception(error)
        attempt.entries.put(None)

    threading.Thread(target=work, daemon=True, name=f"ask {attempt.model.model}").start()
    _keep_entries(attempt)
    try:
        return future.result()
    except LMError as error:
        raise refusal(attempt, error) from error


def _keep_entries(attempt: Attempt) -> None:
    """Until the question is over. StageError after the deadline."""
    deadline_s = attempt.model.deadline_s
    try:
        while entry := attempt.entries.get(timeout=max(0.0, deadline_s - attempt.elapsed)):
            attempt.answered(entry)
            attempt.kept.set()
    except queue.Empty:
        attempt.failed(f"no answer within {deadline_s:g} s")
        raise StageError(attempt.stage, f"no answer within {deadline_s:g} s") from None
    finally:
        attempt.left = True


def refusal(attempt: Attempt, error: LMError) -> KsflowError:
    """One sentence on what a provider did not do. A ConfigError is what no retry can mend."""
    model = attempt.model
    said = model.redact(" ".join(str(error).split()))[:500]
    attempt.failed(f"{type(error).__name__}: {said}")
    where = model.key or "the configuration"
    if isinstance(error, LMAuthError):
        return ConfigError(f"{model.model} refused the key in {where}: {said}")
    if isinstance(error, LMBillingError):
        return ConfigError(f"{model.model} wants to be paid first: {said}")
    if isinstance(error, LMUnsupportedModelError | LMConfigurationError | LMUnsupportedFeatureError):
        return ConfigError(f"{model.model} cannot be used as configured: {said}")
    for kind, sentence in _TRANSIENT:
        if isinstance(error, kind):
            return StageError(attempt.stage, f"{model.model} {sentence}: {said}")
    return StageError(attempt.stage, f"{model.model} failed ({type(error).__name__}): {said}")


_TRANSIENT: tuple[tuple[type[LMError], str], ...] = (
    (LMRateLimitError, "is still over its rate limit after the retries"),
    (LMTimeoutError, "did not answer in time"),
    (LMTransportError, "cannot be reached"),
    (ContextWindowExceededError, "cannot take a prompt this long"),
)


@cache
def _use_own_cache(path: str) -> None:
    dspy.configure_cache(disk_cache_dir=path, memory_max_entries=_MEMORY, restrict_pickle=True)


def _text(outputs: list[Any]) -> str:
    first = outputs[0] if outputs else ""
    return str((first.get("text") if isinstance(first, dict) else first) or "")


def _price_source(entry: dict[str, Any]) -> str:
    if not entry["usage"]:
        return "cache"
    details = entry.get("cost_details") or {}
    if details.get("kind") != "estimate":
        return ""
    source = details.get("metadata", {})
    return f"DSPy's price list {source.get('snapshot_version', '?')}, {details.get('model', '')}"
