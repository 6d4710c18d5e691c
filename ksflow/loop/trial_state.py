"""The states of a trial, what follows which, and what counts against the budget of evaluations."""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from ksflow.loop.events import Step
from ksflow.records import Plan, Trial, Verdict


class State(StrEnum):
    """How far a trial has come."""

    PLANNED = "planned"
    """It has its id and an experiment."""
    WRITTEN = "written"
    """It has a kernel."""
    FAILED = "failed"
    """Its writer had none to give."""
    JUDGED = "judged"
    CONFIRMED = "confirmed"
    """It led, and was judged once more beside others."""


class Next(NamedTuple):
    """What is done with a trial."""

    step: Step | None
    """An interrupted run takes up what is to be written or evaluated."""
    then: tuple[State, ...]
    """What it may be after that."""


NEXT: Mapping[State, Next] = {
    State.PLANNED: Next(Step.WRITE, (State.WRITTEN, State.FAILED)),
    State.WRITTEN: Next(Step.EVALUATE, (State.JUDGED,)),
    State.FAILED: Next(None, ()),
    State.JUDGED: Next(Step.CONFIRM, (State.JUDGED, State.CONFIRMED)),
    State.CONFIRMED: Next(Step.CONFIRM, (State.JUDGED, State.CONFIRMED)),
}
"""Only the leader is confirmed. What became stale, or the judge could not answer, counts as written again."""


def state(trial: Trial) -> State:
    """How far it has come."""
    if trial.evaluation is not None:
        again = any(row.moment for row in trial.evaluation.evidence.against)
        return State.CONFIRMED if again else State.JUDGED
    if trial.failure:
        return State.FAILED
    return State.PLANNED if trial.kernel is None else State.WRITTEN


def waits_for(trial: Trial, step: Step) -> bool:
    """Whether that is what is to be done with it next."""
    return NEXT[state(trial)].step is step


def advanced(trial: Trial, **changes: Any) -> Trial:
    """The trial one state further. ValueError where that does not follow."""
    after = replace(trial, **changes)
    if state(after) not in NEXT[state(trial)].then:
        raise ValueError(f"trial {trial.id} cannot be {state(after)}: it is {state(trial)}")
    return after


def goes_back(trial: Trial, times: int, repairs: int, repeats: str) -> bool:
    """Whether a trial goes back to the writer, whose experiment it has had back `times` times.

    repairs: how often a failed kernel may; repeats: what becomes of code that was tried before (`Schedule`).
    """
    if trial.evaluation is None or trial.kernel is None:
        return False
    if trial.repeats:
        return repeats == "show" and times <= repairs
    return trial.score_us is None and trial.evaluation.verdict is not Verdict.HARNESS and times < repairs


class Tally:
    """What a run has used so far; `most`: evaluations, None for no limit. Any number of threads may count."""

    def __init__(self, most: float | None = None) -> None:
        self.most = math.inf if most is None else most
        self.started = time.monotonic()
        self.dispatched = 0
        """Questions to the judge that are taken from the budget, answered or not."""
        self.judged = self.repeats = self.checks = 0
        """Experiments that were judged, or answered from the record; kernels that were judged while being written."""
        self.tried = 0
        """Experiments that came to a kernel."""
        self.rounds = self.planning = 0
        """Rounds that have begun; those of them that have not said yet how many experiments they bring."""
        self.barren = self.unpromising = self.harness_errors = 0
        """In a row: rounds without a trial, plans without a promise, questions that the judge could not answer."""
        self.judge_s = 0.0
        self.trouble = ""
        """Why the newest experiment, or the newest round, came to nothing."""
        self._lock = threading.Lock()

    def left(self, wanted: int) -> int:
        """How many of so many the budget still covers."""
        return int(max(min(wanted, self.most - self.dispatched), 0))

    def reserve(self, wanted: int) -> int:
        """The same, taken from the budget."""
        with self._lock:
            granted = self.left(wanted)
            self.dispatched += granted
            return granted

    def give_back(self, count: int) -> None:
        """Return what was reserved and not used."""
        with self._lock:
            self.dispatched -= count

    def begin_round(self) -> None:
        """Another round, which plans now."""
        with self._lock:
            self.rounds += 1
            self.planning += 1

    def end_planning(self, plan: Plan | None) -> None:
        """A round needs no more than it has reserved; whether an experiment of its plan may gain anything counts."""
        with self._lock:
            self.planning -= 1
            if plan:
                self.unpromising = 0 if any(e.gain_percent[1] >= 0 for e in plan.experiments) else self.unpromising + 1

    def end_round(self, barren: bool) -> None:
        """It brought a trial or was `barren`."""
        with self._lock:
            self.barren = self.barren + 1 if barren else 0

    def count_check(self, trial: Trial) -> None:
        """A kernel was judged that is still being written."""
        with self._lock:
            self.checks += 1
            self.judge_s += trial.evaluation.wall_s if trial.evaluation else 0.0
            self._count_answer(trial)

    def count_trial(self, trial: Trial) -> None:
        """An experiment has come to its end."""
        with self._lock:
            self.tried += trial.kernel is not None
            self.trouble = trial.failure or self.trouble
            if trial.repeats:
                self.repeats += 1
                self.dispatched -= 1
                return
            self.judged += 1
            self._count_answer(trial)

    def _count_answer(self, trial: Trial) -> None:
        if trial.evaluation is None:
            return
        failed = trial.evaluation.verdict is Verdict.HARNESS
        self.harness_errors = self.harness_errors + 1 if failed else 0
        self.trouble = trial.evaluation.reason if failed else self.trouble
