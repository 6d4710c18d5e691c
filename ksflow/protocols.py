"""The verbs: what each of the five stages promises. A stage is one callable; a function will do.

A stage takes values and returns a value. It never sees the configuration, the lineage or another stage, must not
change what it is given, and is called again after a crash with the same values. What it raises becomes a
`StageError` (`errors.stage_boundary`), and so does an answer that cannot be kept (`records.schema.received`): that
costs a trial and never the run. One that has a parameter `context` is given a `Context` there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from ksflow.records import (
    Call,
    Cost,
    Evaluation,
    Experiment,
    Explanation,
    Kernel,
    Material,
    Note,
    Plan,
    Population,
    Problem,
    Question,
    Reservation,
    Review,
    Selection,
    Step,
    Trial,
)

T = TypeVar("T")
MODEL_STAGES = ("selector", "designer", "writer", "verifier", "digester")
"""Those of a run that may ask a model, in the order of a round."""
Check = Callable[[Kernel], Trial | str]
"""Asks the judge about a kernel that is being written: it with its verdict, or why nobody was asked."""


@dataclass(frozen=True)
class Context:
    """What surrounds a stage's values."""

    sample: int = 0
    """Which of the rounds that share their knowledge asks: each of them draws anew."""
    check: Check | None = None
    """The judge, for a writer; None where it may not be asked."""
    reviewed: Callable[[Review], None] = lambda _: None
    """Takes what was said of a kernel before it is compiled, for the record."""
    left: Mapping[str, float] = field(default_factory=dict)
    """Budget (`evaluations`, `rounds`, `minutes`, `usd` ...) -> how much of it is left, for selectors and designers."""

    def seed(self, seed: int, population: Population) -> str:
        """What a stage that draws starts from: the same for the same knowledge, but for the rounds that share it."""
        return f"{seed}:{len(population.trials)}{f':{self.sample}' if self.sample else ''}"


NO_CONTEXT = Context()
"""Of a stage that is called outside a run."""


def call_stage(stage: Callable[..., T], *values: object, context: Context) -> T:
    """What a stage makes of its values, and of the context where it takes one."""
    return stage(*values, context=context) if "context" in signature(stage).parameters else stage(*values)


class Selector(Protocol):
    """Picks the kernel to change and the one to learn from."""

    def __call__(self, problem: Problem, population: Population) -> Selection:
        """`population` holds at least one accepted trial. Both picks must come from it and be accepted."""


class Designer(Protocol):
    """Turns a selection into experiments."""

    def __call__(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
    ) -> Plan:
        """At least one picked experiment. An experiment that was tried already is worth avoiding, not an error."""


class Writer:
    """Turns an experiment into a whole new kernel."""

    repairs = True
    """Whether it can be given a failed attempt."""

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        """Complete source, never a patch. `failed` is the attempt to repair, with the judge's evidence."""
        raise NotImplementedError


class Verifier:
    """Reads a kernel before it is compiled, for `writer=verified`."""

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        kernel: Kernel,
        failed: Trial | None = None,
    ) -> Review:
        """Where it has findings the kernel goes back to its writer with them, once. `failed` is what it repairs."""
        raise NotImplementedError


class Evaluator:
    """Says whether a kernel is right and how fast it is.

    Results of another `judge` or another `fingerprint` are stale; without them they are taken to stay comparable, and
    never come from the cache. It is called by several threads, but never by more than `devices` at a time.
    """

    level = ""
    """How well it holds what a kernel does."""
    devices = 1
    """How many kernels it judges at once."""
    recorded = False
    """Whether it repeats a recorded run, durations included."""
    profiles = False
    """Whether it can be made to read hardware counters (`evaluator.profile=true`)."""

    @property
    def judge(self) -> str:
        """Its name and version."""
        return ""

    @property
    def fingerprint(self) -> str:
        """The machine's, as in `Evaluation.target`."""
        return ""

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Ratios to each of `versus` (incumbent first) go into the evidence.

        `evidence.against` has a `Comparison` with each, `evidence.claim` the `Claim` about the first of them.
        `wall_s`: what it took, where the time until the answer would count a queue; else 0, and that time counts.
        """
        raise NotImplementedError

    def start(self) -> None:
        """The first question is near."""

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Do what needs no device before the kernel's turn there. Called by any thread."""

    def code(self, problem: Problem, kernel: Kernel) -> str:
        """Names what the judge would run, as `evidence.artefact` does; kernels with the same one are the same.

        Empty where nothing is compiled here. It is asked when it is the kernel's turn at the device.
        """
        return ""

    def stop(self) -> bool:
        """Abandon evaluations in progress, which then return `harness-error`, and refuse later ones; whether it can.

        Called by any thread, with the first Ctrl-C.
        """
        return False

    def close(self) -> None:
        """End helpers."""

    def admit(self, problem: Problem) -> Iterable[tuple[str, bool, str]] | None:
        """Whether the problem can be judged: (name, ok, detail); None where it cannot say."""
        return None

    def measure(self, problem: Problem, kernel: Kernel) -> Evaluation | None:
        """A verdict with small outputs and errors in the evidence; None where it runs nothing here."""
        return None


class Digester(Protocol):
    """Turns documents and outcomes into notes."""

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        """The notes to keep from now on: all of them, the old ones it still believes included."""


EvaluateFunction = Callable[[Problem, Kernel, tuple[Trial, ...]], Evaluation]
WriteFunction = Callable[[Problem, Selection, Experiment, tuple[Note, ...], Trial | None], Kernel]
VerifyFunction = Callable[[Problem, Selection, Experiment, tuple[Note, ...], Kernel, Trial | None], Review]


class _OwnEvaluator(Evaluator):
    """A function, or an object that has some of what an evaluator has."""

    def __init__(self, stage: EvaluateFunction) -> None:
        self._stage = stage
        for name in ("level", "devices", "recorded", "start", "prepare", "code", "close", "admit", "measure"):
            setattr(self, name, getattr(stage, name, getattr(self, name)))

    @property
    def judge(self) -> str:
        return str(getattr(self._stage, "judge", ""))

    @property
    def fingerprint(self) -> str:
        return str(getattr(self._stage, "fingerprint", ""))

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        return self._stage(problem, kernel, versus)


def as_evaluator(stage: EvaluateFunction) -> Evaluator:
    """An evaluator as it is; anything else that can be called, with defaults for what it does not have."""
    return stage if isinstance(stage, Evaluator) else _OwnEvaluator(stage)


def repairs(stage: WriteFunction) -> bool:
    """Whether a writer can be given a failed attempt: any can that does not say otherwise."""
    return bool(getattr(stage, "repairs", True))


@runtime_checkable
class Asks(Protocol):
    """A stage that asks a model."""

    program: Any
    """Its `ksflow.lm.program.Program`."""

    def question(self, *values: Any) -> Any:
        """The `Inquiry` that it would make of its values, without asking."""


class Composite:
    """A stage that hands its values on to another."""

    parts: tuple[Callable[..., Any], ...] = ()
    """Those of them that may ask a model."""


class Explainer(Protocol):
    """Says what a kernel does."""

    by: str
    """The model whose words it adds; empty where it adds none."""

    def __call__(self, problem: Problem, trial: Trial, step: Step, facts: Explanation) -> Explanation:
        """The facts, and what it has to say beside them; it changes none. `step`: how the trial came about."""


@dataclass(frozen=True)
class TrackedRun:
    """A run, as a tracker is told of it."""

    problem: str
    run: str
    identity: str
    """Sixteen letters and digits that no other run has, and that it keeps when it goes on."""
    group: str
    """The sweep or suite that it belongs to; empty where there is none."""
    parameters: Mapping[str, str]
    """The configuration, flat, without keys and passwords."""


@dataclass(frozen=True)
class TrackedTrial:
    """A trial with its verdict, as a tracker is told of it."""

    step: int
    """Its number: that of trial 00052 is 52. They come in any order."""
    verdict: str
    metrics: Mapping[str, float]
    """`accepted` (0 or 1), and where they are known `score_us`, `best_us` (the best so far), `speedup_over_incumbent`,
    `speedup_over_baseline`, `usd`, `tokens`, `minutes`."""


class Tracker:
    """Shows a run somewhere else. All of it is called by one thread; what it raises switches it off for this run."""

    def start(self, run: TrackedRun) -> Collection[int]:
        """Open the run, or go on with the one of that identity; the steps that it has already, which are not told."""
        return ()

    def log(self, trial: TrackedTrial) -> None:
        """Take in one trial."""

    def finish(self, summary: Mapping[str, str], files: Sequence[Path]) -> None:
        """The run has ended: its figures, and the files that are worth keeping. Not called where it was abandoned."""


class Answerer(Protocol):
    """A model, as far as a run asks it anything but its stages' questions."""

    def greet(self) -> None:
        """Ask for a sign of life. StageError or ConfigError where there is none, BudgetError where it is too dear."""


SIGN_OF_LIFE = "sign of life"
"""The stage of such a call on record."""


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

    files: Mapping[str, str]
    """Path -> text, for reading."""
    kernel: Kernel
    """What it starts from; its main file, as the agent leaves it, is the answer."""
    check: Check | None = None
    """The judge, which the agent may ask."""


@dataclass
class Account:
    """What the calls about one thing have cost."""

    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class CallContext:
    """What surrounds a model call: who asks, what for, where it is recorded and by whom it is metered."""

    stage: str = ""
    """Who asks: the stage and its variant."""
    about: str = ""
    """What it is for: `round 1.3`, or the id of a trial."""
    sample_index: int = 0
    """Which of several answers to the same question is wanted: an earlier one may be had again, another is new."""
    record: Callable[[Call], None] | None = None
    """Keeps every finished call; returns once it is safe on disk."""
    account: Account | None = None
    """What such a call is charged to, beside the whole."""
    meter: Meter | None = None
    """Asked before every call."""
    workspace: Workspace | None = None
    """Of an agent that works on files; None where the words of the answer are all."""
    until: float | None = None
    """The `time.monotonic()` after which nobody waits for the answer."""
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
