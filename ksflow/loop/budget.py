"""Caps on what models may cost. A call is let through only when what it may cost at most still fits beside the others.

Money and tokens are counted by the transcript. What a call in flight may cost is reserved, so a cap is never exceeded
(as far as a provider keeps to the longest answer it was allowed); what a call may have cost of which nobody told is on
record as if it had. A budget in time ends the calls in flight, too: each is told until when it may take.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ksflow.errors import BudgetError, ConfigError
from ksflow.lineage.transcript import Transcript
from ksflow.protocols import MODEL_STAGES
from ksflow.records import Cost, Question, Reservation

STAGES = (*MODEL_STAGES, "evaluator")
KINDS = ("usd", "tokens", "calls", "minutes")
_NOT_OF_MODELS = ("evaluations", "rounds", "minutes", "stages.evaluator.minutes")
_LOOK_S = 0.2


class _Cap:
    """The most that may be spent of one kind, by one stage or (stage "") by all."""

    def __init__(self, name: str, most: float) -> None:
        self.name, self.most = name, most
        self.stage, _, self.kind = name.removeprefix("stages.").rpartition(".")

    def covers(self, question: Question) -> bool:
        """Whether it is about the stage that asks."""
        return self.stage in ("", _stage(question))

    def amount(self, cost: Cost) -> float:
        """What a cost takes of it."""
        amounts = {"usd": cost.usd, "tokens": cost.tokens, "calls": cost.calls, "minutes": cost.wall_s / 60}
        return float(amounts[self.kind])

    def need(self, question: Question) -> float:
        """What a call may take of it at most. ConfigError where no price is known."""
        if self.kind == "usd" and question.usd_most is None:
            raise ConfigError(
                f"loop.{self.name} cannot be kept: no price is known for {question.model}; set usd_per_mtok_in and "
                f"usd_per_mtok_out of the model, or cap loop.tokens"
            )
        tokens = question.tokens_in + question.tokens_out
        return float({"usd": question.usd_most or 0.0, "tokens": tokens, "calls": 1}.get(self.kind, 0.0))


class Meter:
    """Asked before every model call, from any number of threads.

    caps: name (`usd`, `stages.writer.usd`) -> the most; `minutes` count from now; those of other kinds are for others
    to keep. stop: asked whether to wait any longer. limits: the caps as the user gave them, where these are a share of
    them.
    """

    def __init__(
        self,
        transcript: Transcript,
        caps: Mapping[str, float],
        stop: Callable[[], bool] = lambda: False,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        self._transcript, self._all_caps = transcript, {**caps, **(limits or {})}
        self._caps = [_Cap(name, most) for name, most in caps.items() if name not in _NOT_OF_MODELS]
        self._stop = stop
        self._ends = {"minutes": time.monotonic() + 60 * caps["minutes"]} if "minutes" in caps else {}
        self._changed = threading.Condition()
        self._held: list[tuple[Question, Reservation]] = []
        self._before = {stage: self._counted(stage) for stage in ("", *STAGES)}

    @contextmanager
    def reserve(self, question: Question) -> Iterator[Reservation]:
        """Set aside what one call may cost; wait while calls in flight may leave enough. BudgetError where none can."""
        reservation = self._wait_for_room(question)
        try:
            yield reservation
        finally:
            with self._changed:
                self._held = [held for held in self._held if held[1] is not reservation]
                self._changed.notify_all()

    def total_cost(self, stage: str = "") -> Cost:
        """By the calls since this meter was made; of one stage, or of all."""
        return self._counted(stage) - self._before[stage]

    def amount(self, name: str) -> float:
        """What of one cap is spent."""
        cap = next(cap for cap in self._caps if cap.name == name)
        return cap.amount(self.total_cost(cap.stage))

    def check(self, question: Question) -> None:
        """Whether the caps can be kept and cover a first call of this kind. ConfigError."""
        for cap in self._caps:
            if cap.covers(question) and (need := cap.need(question)) > cap.most:
                raise ConfigError(
                    f"loop.{cap.name}={cap.most:g} does not cover one call of {question.stage}, which may take "
                    f"{need:.4g}; raise it, or lower {_stage(question)}.lm.max_tokens"
                )

    def _wait_for_room(self, question: Question) -> Reservation:
        """Return once there is room for it, which is taken then."""
        while True:
            stopping = self._stop()
            with self._changed:
                until, budget = min(self._limits(question), default=(None, ""))
                if until is not None and until <= time.monotonic():
                    raise BudgetError(f"{budget} used up")
                cap = self._exceeded(question, [asked for asked, _ in self._held])
                if cap is None:
                    self._held.append((question, reservation := Reservation(until=until, budget=budget)))
                    return reservation
                if stopping or self._exceeded(question, [asked for asked, held in self._held if held.lost]):
                    raise BudgetError(f"{cap}={self._all_caps[cap]:g} used up")
                self._changed.wait(_LOOK_S)

    def _limits(self, question: Question) -> Iterator[tuple[float, str]]:
        """The `time.monotonic()` at which each budget in time ends that covers the question."""
        now = time.monotonic()
        stages = {
            cap.name: now + 60 * (cap.most - cap.amount(self.total_cost(cap.stage)))
            for cap in self._caps
            if cap.kind == "minutes" and cap.covers(question)
        }
        yield from ((until, f"{name}={self._all_caps[name]:g}") for name, until in {**self._ends, **stages}.items())

    def _exceeded(self, question: Question, held: list[Question]) -> str | None:
        """The cap that this question would go beyond, beside those that are held."""
        for cap in self._caps:
            if cap.covers(question):
                needed = sum(cap.need(q) for q in (*held, question) if cap.covers(q))
                if cap.amount(self.total_cost(cap.stage)) + needed > cap.most * (1 + 1e-9):
                    return cap.name
        return None

    def _counted(self, stage: str) -> Cost:
        return self._transcript.stages.get(stage, Cost()) if stage else self._transcript.total


def caps_of(whole: Mapping[str, float | None], stages: Mapping[str, Mapping[str, float | None]]) -> dict[str, float]:
    """Caps by name from the configuration's keys. ConfigError for a stage, a kind or an amount that is none."""
    caps = dict(whole)
    for stage, kinds in stages.items():
        if stage not in STAGES or not isinstance(kinds, Mapping):
            raise ConfigError(
                f"loop.stages.{stage}: caps are written loop.stages.STAGE.KIND=; stages: {', '.join(STAGES)}"
            )
        for kind, most in kinds.items():
            if kind not in KINDS or (stage == "evaluator" and kind != "minutes"):
                raise ConfigError(f"loop.stages.{stage}.{kind}: valid kinds: {', '.join(KINDS)}; evaluator: minutes")
            caps[f"stages.{stage}.{kind}"] = most
    for name, most in caps.items():
        if most is not None and (not isinstance(most, int | float) or isinstance(most, bool) or not most >= 0):
            raise ConfigError(f"loop.{name}={most} must be a number from 0 up, or null for no limit")
    return {name: most for name, most in caps.items() if most is not None}


def _stage(question: Question) -> str:
    return question.stage.partition("=")[0]
