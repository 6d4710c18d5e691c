"""Model calls: what surrounds a call, who asks, what is recorded and what it may cost."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ksflow.records import Call, Cost, Evaluation, Kernel, Question, Reservation, Trial

Check = Callable[[Kernel], Trial | str]
"""Asks the judge about a kernel that is being written: it with its verdict, or why nobody was asked."""


class Answerer(Protocol):
    """A model, as far as a run asks it anything but its stages' questions."""

    def greet(self) -> None:
        """Ask for a sign of life. StageError or ConfigError where there is none, BudgetError where it is too dear."""


SIGN_OF_LIFE = "sign of life"  # the stage of such a call on record


class Recording(Protocol):
    """A recorded run, as a replay's stages see it: of one session, or of all before one is opened."""

    @property
    def session(self) -> int:
        """The number of the session that is open; 0 where none is."""

    @property
    def judges_anew(self) -> bool:
        """Whether its kernels are judged anew."""

    def calls(self) -> tuple[Call, ...]:
        """The model calls, in their order."""

    def evaluations(self) -> tuple[tuple[str, Evaluation], ...]:
        """(the kernel's digest, the verdict) each time the judge was asked, in their order."""

    def first_verdict(self) -> Evaluation | None:
        """The first of any session: a session may have judged nothing."""


Meter = Callable[[Question], AbstractContextManager[Reservation]]


@dataclass(frozen=True)
class Workspace:
    """What lies in the folder of an agent that writes a kernel."""

    files: Mapping[str, str]  # path -> text, for reading
    kernel: Kernel  # what it starts from; its main file, as the agent leaves it, is the answer
    check: Check | None = None  # the judge, which the agent may ask


@dataclass
class Account:
    """What the calls about one thing have cost."""

    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class CallContext:
    """What surrounds a model call: who asks, what for, where it is recorded and by whom it is metered."""

    stage: str = ""  # who asks: the stage and its variant
    about: str = ""  # what it is for: `round 1.3`, or the id of a trial
    sample_index: int = 0
    """Which of several answers to the same question is wanted: an earlier one may be had again, another is new."""
    record: Callable[[Call], None] | None = None  # keeps every finished call; returns once it is safe on disk
    account: Account | None = None  # what such a call is charged to, beside the whole
    meter: Meter | None = None  # asked before every call
    workspace: Workspace | None = None
    """Of an agent that works on files; None where the words of the answer are all."""
    until: float | None = None  # the `time.monotonic()` after which nobody waits for the answer
    unanswered: Callable[[], AbstractContextManager[Callable[[], bool]]] = lambda: nullcontext(lambda: False)
    """Around the wait for a person, which can take hours: what it gives says whether the run is being ended. Outside a
    run Ctrl-C ends the wait by itself."""


_context: ContextVar[CallContext] = ContextVar("call_context", default=CallContext())  # noqa: B039 - it is frozen


def call_context() -> CallContext:
    """The context of the model calls that are made here."""
    return _context.get()


@contextmanager
def override_call(**changes: Any) -> Iterator[None]:
    """Meanwhile, and in threads that copy this one's context, model calls are made with these fields changed."""
    before = _context.set(replace(_context.get(), **changes))
    try:
        yield
    finally:
        _context.reset(before)


def record(call: Call) -> None:
    """Hand a finished model call to whoever keeps the transcript. Returns once it is safe on disk."""
    keep = _context.get().record
    if keep is not None:
        keep(call)


def reserve(question: Question) -> AbstractContextManager[Reservation]:
    """What a model call may cost, set aside while it lasts and until it is recorded. Raises BudgetError; may wait."""
    meter = _context.get().meter
    return nullcontext(Reservation()) if meter is None else meter(question)
