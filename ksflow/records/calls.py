"""Calls of models: what they may cost, and what was said."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksflow.records.base import Record, Scalar
from ksflow.records.trials import Cost


@dataclass(frozen=True)
class Call(Record):
    """One call of a model, as it is kept in the transcript."""

    stage: str
    model: str
    messages: tuple[Mapping[str, str], ...]
    """role and content, as sent."""
    answer: str = ""
    error: str = ""
    cost: Cost = Cost()  # noqa: RUF009 - Cost is frozen
    price_source: str = ""
    """Where the price was read, or empty when it is unknown."""
    cut: bool = False
    """The provider stopped at its token limit."""
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """What the model was told beside the messages: temperature, max_tokens, reasoning_effort, ..."""
    about: str = ""
    """What it was for: `round 3`, or the id of a trial."""


@dataclass(frozen=True)
class Question:
    """A model call that is about to be made, and what it may cost."""

    stage: str
    model: str
    tokens_in: int
    """Of the prompt, estimated."""
    tokens_out: int
    """The most that the answer may have."""
    usd_in: float | None = None
    """The prompt's price; None when no price is known."""
    usd_most: float | None = None
    """The price of the prompt and the longest answer; None when no price is known."""
    price_source: str = ""


@dataclass
class Reservation:
    """What one call may cost, set aside until the call is over."""

    lost: bool = False
    """Set when its try is over and nobody knows what it cost: nothing of it will be left for others."""
    until: float | None = None
    """The `time.monotonic()` at which a budget in time is used up; None where there is none."""
    budget: str = ""
    """That budget, as errors name it."""
