"""One question to a model, from the moment it is asked to its entry in the transcript. Knows nothing of DSPy.

Two threads share it: the one that asks, which gives leave, keeps the transcript and watches the deadline, and the
one that talks to the provider.
"""

import contextvars
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ksflow.errors import ConfigError, KsflowError, StageError
from ksflow.lm.model import Model
from ksflow.lm.prices import price
from ksflow.protocols import transcribe
from ksflow.records import Call, Cost, Question

Messages = list[dict[str, Any]]
LATE = "answered after the deadline"
"""The error of a call whose answer nobody waited for; what it cost is true."""
FILTERED = "the provider's safety filter refused"
LONGEST_ANSWER = 32_000
"""Tokens that an answer may have, to reckon with, where `max_tokens` leaves it to the provider."""
_BYTES_PER_TOKEN = 3  # of code and English it is nearer 4: an estimate that rather has too many
_CONFIG = "ConfigError: "


class Filtered(StageError):
    """A safety filter kept the answer back. Another try may fare better."""


class Abandoned(Exception):
    """Nobody waits for the answer any more, so nothing more is asked."""


@dataclass
class Leave:
    """What the provider's thread wants before each try."""

    given: threading.Event = field(default_factory=threading.Event)


@dataclass
class Attempt:
    """One question to a model."""

    stage: str
    model: Model
    sent: Messages = field(default_factory=list)
    """What was asked, known once it is formatted."""
    started: float = field(default_factory=time.monotonic)
    waited_s: float = 0.0
    """Before the first try, and for leave: this counts towards no deadline."""
    live: bool = False
    """A provider was asked: the answer is not out of the cache."""
    lost: bool = False
    """A try is on its way, or broke off: nobody knows whether it will be charged."""
    done: bool = False
    """It is in the transcript."""
    left: bool = False
    """Nobody listens any more."""
    cut: bool = False
    """The provider stopped at its token limit."""
    refused: str = ""
    """What a safety filter said."""
    entries: queue.SimpleQueue[Leave | Mapping[str, Any] | None] = field(default_factory=queue.SimpleQueue)
    """From the provider's thread: a wish to ask, what DSPy says of a finished call, None when all is over."""
    kept: threading.Event = field(default_factory=threading.Event)
    """The entry is in the transcript."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held where `left` is set, and where something is put into `entries`."""

    @property
    def elapsed_s(self) -> float:
        """Since it was asked."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float | None:
        """Until the deadline; None when there is none, or not yet."""
        deadline_s = self.model.deadline_s
        return None if deadline_s is None or not self.live else max(0.0, deadline_s + self.waited_s - self.elapsed_s)

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

    def wish(self) -> None:
        """From the provider's thread, before each try: returns once there is leave. Abandoned when there is none."""
        leave = Leave()
        with self.lock:
            if self.left:
                raise Abandoned
            self.entries.put(leave)
        while not leave.given.wait(1.0):
            if self.left:
                raise Abandoned

    def export_winner(self, entry: Mapping[str, Any]) -> bool:
        """From the provider's thread: True once the asking thread has kept the entry, False when it has gone."""
        with self.lock:
            if self.left:
                return False
            self.entries.put(entry)
        while not (self.left or self.kept.wait(1.0)):
            pass
        return True

    def failed(self, error: KsflowError) -> None:
        """Keep that there was no answer."""
        if not self.done:
            self.keep(self.call(error=told(error), cost=Cost(calls=1, wall_s=self.elapsed_s)))

    def call(self, answer: str = "", error: str = "", **spent: Any) -> Call:
        """The record of it, without secrets."""
        model = self.model
        messages = tuple(
            {"role": str(message["role"]), "content": model.redact(str(message["content"]))} for message in self.sent
        )
        return Call(
            self.stage,
            model.model,
            messages,
            model.redact(answer),
            model.redact(error),
            cut=self.cut,
            settings=model.settings,
            **spent,
        )

    def keep(self, call: Call) -> None:
        """Into the transcript. Returns once it is safe on disk."""
        transcribe(call)
        self.done = True


def told(error: KsflowError) -> str:
    """An error as a record holds it; `failure` is the way back."""
    if isinstance(error, StageError):
        return error.reason
    return f"{_CONFIG if isinstance(error, ConfigError) else ''}{error}"


def failure(stage: str, error: str) -> KsflowError:
    """The exception that a recorded error was."""
    if error.startswith(_CONFIG):
        return ConfigError(error.removeprefix(_CONFIG))
    kind = Filtered if error.startswith(FILTERED) else StageError
    return kind(stage, error)


_current: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar("attempt", default=None)


def current() -> Attempt | None:
    """The attempt that this thread talks to a provider for."""
    return _current.get()


def enter(attempt: Attempt) -> None:
    """From now on, in this context, it is the current one."""
    _current.set(attempt)
