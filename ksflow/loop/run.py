"""A run: what it works on and with, what it has used, when it has had enough, and whom it tells.

It is made by whoever begins a run and passed down to the round, the start and the confirmation, any number of threads
at once. Ctrl-C once: what is in flight is finished and kept, and nobody waits for a person's answer any more. Twice: it
is abandoned, and the next run takes it up.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median

from ksflow.lineage import Lineage
from ksflow.lineage.history import RecordedRun
from ksflow.lineage.locks import Turns
from ksflow.lineage.transcript import Transcript
from ksflow.loop import judging, stops
from ksflow.loop.budget import Meter
from ksflow.loop.events import Began, Checked, Ending, Event, Judged
from ksflow.loop.queue import DeviceQueue, Interruption
from ksflow.loop.schedule import Schedule
from ksflow.loop.trial_state import Tally
from ksflow.protocols import (
    Answerer,
    Designer,
    Digester,
    EvaluateFunction,
    Selector,
    WriteFunction,
    as_evaluator,
    as_writer,
)
from ksflow.records import Key, Note, Population, Problem, Trial

_BARREN_ROUNDS = 3
"""Rounds in a row without a trial after which a run gives up, for each round that may be in flight."""

_TELLING = 3
"""Experiments after which their pace tells how long the others take."""
_CONFIRMING = 4
"""Judgements that a confirmation takes: the winner beside its rival, beside the baselines, often another leader's."""


class Stages:
    """The five parts that a user swaps. A plain function will do for each."""

    def __init__(
        self, select: Selector, design: Designer, write: WriteFunction, evaluate: EvaluateFunction, digest: Digester
    ) -> None:
        self.select, self.design, self.digest = select, design, digest
        self.write, self.evaluate = as_writer(write), as_evaluator(evaluate)


class Run:
    """One call of a run. Listeners are told of every event, by any thread and several at a time; no lock is held then.

    initial_notes: notes that came with the target, shown before what was learnt. recorded: a recorded run to be
    replayed. models: those that the stages call; each is asked for a sign of life before the seeds are judged, and what
    the search may cost is estimated.
    """

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        problem: Problem,
        lineage: Lineage,
        stages: Stages,
        schedule: Schedule | None = None,
        listeners: Sequence[Callable[[Event, "Run"], None]] = (),
        initial_notes: tuple[Note, ...] = (),
        recorded: RecordedRun | None = None,
        models: Sequence[Answerer] = (),
    ) -> None:
        self.problem, self.lineage, self.stages = problem, lineage, stages
        self.schedule = schedule or Schedule()
        self.initial_notes, self.recorded, self.models = initial_notes, recorded, models
        self.transcript = Transcript(lineage)
        self.device = DeviceQueue(stages.evaluate.devices)
        self.tally = Tally(self.schedule.caps.get("evaluations"))
        self.meter = Meter(self.transcript, self.schedule.caps, self.stopping)
        self.budgets = stops.budgets(self.schedule.caps, self.meter)
        self.stops: list[stops.Stop] = list(self.budgets)
        if recorded is None:
            self.stops += self._conditions()
        self.exact: Turns | None = None
        """The recorded steps, where they are repeated one by one."""
        self.search_started: float | None = None
        """When the first round could begin: the seeds were judged by then."""
        self.search_ended: float | None = None
        """When the last round was over: what follows is the winner's confirmation."""
        self.searching = False
        """Whether trials count against the budgets; seeds, and what an earlier call left, do not."""
        self.ended = ""
        """Why no more rounds begin."""
        self.error: BaseException | None = None
        self.doing: dict[int, tuple[str, str]] = {}
        """Thread -> (step, trial): what is in flight."""
        self.unanswered = 0
        """Questions to a person that wait, or waited when Ctrl-C was pressed."""
        self.baseline_ids: frozenset[str] = frozenset()
        self.changed = threading.Condition(threading.RLock())
        """Guards what is in flight."""
        self._listeners = listeners
        self._interruption = Interruption(self._announce)

    @property
    def key(self) -> Key:
        """What a verdict given now holds for."""
        return judging.key(self.problem, self.stages.evaluate)

    @property
    def known(self) -> Population:
        """The population as this process knows it."""
        return self.lineage.known

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """The accepted baselines, fastest first."""
        known = self.known.by_id
        return tuple(Population(tuple(known[id] for id in sorted(self.baseline_ids) if id in known)).ranked)

    def replay(self, recorded: Turns | None) -> None:
        """Go by a recorded session, if there is one. Where its steps are repeated one by one, no budget counts."""
        if recorded is not None and recorded.ordered:
            self.exact, self.tally.most = recorded, math.inf

    # -- when it has had enough ------------------------------------------------------------------

    @property
    def interrupted(self) -> bool:
        """Whether the user has pressed Ctrl-C."""
        return self._interruption.requested.is_set()

    def interrupt(self) -> None:
        """End as with Ctrl-C, without a word."""
        self._interruption.requested.set()

    def interruptible(self) -> AbstractContextManager[None]:
        """Meanwhile Ctrl-C ends the search at the next step; a second one raises KeyboardInterrupt."""
        return self._interruption.handled()

    def stopping(self) -> bool:
        """Whether nothing more is to be begun. Asked before each trial, and between the steps of a round."""
        if self.interrupted or self.error:
            return True
        return self.searching and self.exact is None and bool(self.ended or self.enough(at_once=True))

    @property
    def reason(self) -> str:
        """Why it ends."""
        return self.ended or self.enough() or ("interrupted" if self.interrupted else "nothing more may begin")

    def used(self) -> dict[str, float]:
        """Budget -> the share of it that is used."""
        return {budget.name: budget.used(self.tally) for budget in self.budgets}

    def left_s(self) -> float | None:
        """Seconds until the end at the pace so far, the winner's confirmation included. None where nobody can tell."""
        if self.search_started is None:
            return None
        now, newest = time.monotonic(), [t.evaluation for t in self.known.trials[-20:] if t.evaluation and t.score_us]
        took = [each.wall_s for each in newest if each.wall_s]
        confirm_s = _CONFIRMING * median(took) if took and self.schedule.confirm else 0.0
        if self.search_ended is not None:
            return max(self.search_ended + confirm_s - now, 0.0) or None
        elapsed = now - self.search_started
        found = [
            60 * self.schedule.caps[name] * (1 - share) if name == "minutes" else elapsed / share - elapsed
            for name, share in self.used().items()
            if share > 0 and (name == "minutes" or self.tally.judged >= _TELLING)
        ]
        return max(min(found), 0.0) + confirm_s if found else None

    def enough(self, at_once: bool = False) -> str:
        """The first stop's reason, of those that end rounds in flight or of all; empty where there is none."""
        return stops.first_reason(self.stops, self.tally, at_once)

    def _conditions(self) -> Iterator[stops.Stop]:
        yield stops.BarrenRounds(_BARREN_ROUNDS * self.schedule.rounds_in_flight)
        yield stops.JudgeFails()
        if self.schedule.unpromising_rounds:
            yield stops.NothingPromises(self.schedule.unpromising_rounds)

    # -- what is seen ----------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Count what has happened, and show it."""
        with self.changed:
            self._note(event)
        for listener in self._listeners:
            listener(event, self)

    def rest(self) -> None:
        """This thread is at no step any more."""
        with self.changed:
            self.doing.pop(threading.get_ident(), None)
            self.changed.notify_all()

    @contextmanager
    def wait_for_person(self) -> Iterator[Callable[[], bool]]:
        """Around the wait for an answer, which ends with the first Ctrl-C."""
        with self.changed:
            self.unanswered += 1
        try:
            yield lambda: self.interrupted
        finally:
            with self.changed:
                self.unanswered -= not self.interrupted

    def _note(self, event: Event) -> None:
        me = threading.get_ident()
        match event:
            case Began(step, trial):
                self.doing[me] = (step.value, trial.id if trial else "")
            case Checked(trial):
                self.tally.count_check(trial)
            case Judged(trial):
                self.doing.pop(me, None)
                self.tally.judge_s += trial.evaluation.wall_s if trial.evaluation else 0.0
                if self.searching:  # what an earlier call left to be judged again is none of this one's experiments
                    self.tally.count_trial(trial)

    def _announce(self, what: str) -> None:
        for listener in self._listeners:
            listener(Ending(abandoned=what == "abandon"), self)
