"""Calls of models: budgets and records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksflow.records.base import Record, Scalar
from ksflow.records.trials import Cost


@dataclass(frozen=True)
class Call(Record):
    """One call of a model, as kept in the transcript."""

    stage: str
    model: str
    messages: tuple[Mapping[str, str], ...]  # role and content, as sent
    answer: str = ""
    error: str = ""
    cost: Cost = Cost()  # noqa: RUF009 - Cost is frozen
    price_source: str = ""  # where the price was read; empty if unknown
    cut: bool = False  # the provider stopped at its token limit
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameters beside the messages: temperature, max_tokens, reasoning_effort, ..."""
    about: str = ""  # its purpose: `round 3`, or the id of a trial


@dataclass(frozen=True)
class Question:
    """A model call that is about to be made, with its possible cost."""

    stage: str
    model: str
    tokens_in: int  # of the prompt, estimated
    tokens_out: int  # limit of the answer
    usd_in: float | None = None  # the prompt's price; None if unknown
    usd_most: float | None = None
    """The price of the prompt and the longest answer; None if unknown."""
    price_source: str = ""


@dataclass
class Reservation:
    """The possible cost of one call, reserved until the call is over."""

    lost: bool = False  # set when the call is over at an unknown cost: the whole reservation counts as spent
    until: float | None = None
    """The `time.monotonic()` at which a time budget is used up; None without one."""
    budget: str = ""  # that budget, as errors name it
