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
from functools import partial
from statistics import median

from ksflow.lineage import Lineage, Round
from ksflow.lineage.history import RecordedRun
from ksflow.lineage.locks import Turns
from ksflow.lineage.transcript import Transcript
from ksflow.loop import judging, stops
from ksflow.loop.budget import Meter
from ksflow.loop.events import Began, Checked, Ending, Event, Judged
from ksflow.loop.queue import Interruption
from ksflow.loop.schedule import Schedule
from ksflow.protocols import (
    Answerer,
    Designer,
    Digester,
    EvaluateFunction,
    Selector,
    WriteFunction,
    as_evaluator,
    repairs,
)
from ksflow.records import Note, Plan, Population, Problem, Seed, Trial, Verdict

_BARREN_ROUNDS = 3
"""Rounds in a row without a trial after which a run gives up, for each round that may be in flight."""
_JUDGE_FAILURES = 10
"""Questions in a row that the judge may not be able to answer before a run gives up."""
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
        self.write, self.repairs, self.evaluate = write, repairs(write), as_evaluator(evaluate)


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
        self.device = judging.DeviceQueue(stages.evaluate.devices)
        self.tally = stops.Tally(self.schedule.caps.get("evaluations", math.inf))
        self._interruption = Interruption(self._announce)
        self.limits = stops.RunLimits(self.tally, self._interruption.requested)
        self.meter = Meter(self.transcript, self.schedule.caps, self.limits.is_reached)
        self.budgets = stops.budgets(self.schedule.caps, self.meter)
        self.limits.budgets = self.budgets
        if recorded is None:
            self.limits.most_barren = _BARREN_ROUNDS * self.schedule.rounds_in_flight
            self.limits.most_failures = _JUDGE_FAILURES
        self.exact: Turns | None = None
        """The recorded steps, where they are repeated one by one."""
        self.search_started: float | None = None
        """When the first round could begin: what is told before that counts against no budget."""
        self.search_ended: float | None = None
        """When the last round was over: what follows is the winner's confirmation."""
        self.doing: dict[int, tuple[str, str]] = {}
        """Thread -> (step, trial): what is in flight."""
        self.unanswered = 0
        """Questions to a person that wait, or waited when Ctrl-C was pressed."""
        self.judge_stopped = False
        """Whether Ctrl-C has stopped the evaluator."""
        self.baseline_ids: frozenset[str] = frozenset()
        self.changed = threading.Condition(threading.RLock())
        """Guards what is in flight, and what is counted."""
        self._listeners = listeners
        self._judged_before: dict[str, int] = {}
        """A round in flight -> experiments that had been judged when it began."""

    @property
    def population(self) -> Population:
        """The population as this process knows it."""
        return self.lineage.last_population

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """The accepted baselines, fastest first."""
        known = self.population.by_id
        return tuple(Population(tuple(known[id] for id in sorted(self.baseline_ids) if id in known)).ranked)

    def open(self, settings: str) -> None:
        """Open a session, with which the settings are kept, or the recorded one that comes next in a replay.

        Where recorded steps are repeated one by one, no budget counts. Raises ConfigError, LineageError.
        """
        anew = not self.stages.evaluate.recorded
        again = partial(self.recorded.open, anew=anew) if self.recorded else None
        recorded = self.lineage.open_session(settings, self.initial_notes, again)
        self.initial_notes = self.lineage.initial_notes
        if recorded is not None and recorded.ordered:
            self.exact, self.tally.most = recorded, math.inf

    def begin_search(self) -> None:
        """Count from now on what is tried, and have stops end what has begun."""
        self.search_started = time.monotonic()
        self.limits.hold = self.exact is None

    def find_baselines(self, seeds: Sequence[Seed]) -> None:
        """Know which trials are baselines, by the seeds that say so."""
        digests = {seed.kernel.digest for seed in seeds if seed.baseline}
        trials = self.lineage.all_trials()
        self.baseline_ids = frozenset(t.id for t in trials if t.kernel and t.kernel.digest in digests)

    # -- when it has had enough ------------------------------------------------------------------

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a signal has asked the run to end."""
        return self._interruption.requested.is_set()

    def interrupt(self) -> None:
        """End as with Ctrl-C, without a word."""
        self._interruption.requested.set()

    def handle_signals(self) -> AbstractContextManager[None]:
        """Meanwhile a first signal ends the search at the next step; a second one raises KeyboardInterrupt."""
        return self._interruption.handle_signals()

    def used_shares(self) -> dict[str, float]:
        """Budget -> the share of it that is used."""
        return {budget.name: budget.used_share(self.tally) for budget in self.budgets}

    def remaining_budgets(self) -> dict[str, float]:
        """Budget -> how much of it is left; nothing where recorded steps are repeated, for which no budget counts."""
        return {} if self.exact else {budget.name: budget.remaining(self.tally) for budget in self.budgets}

    def left_s(self) -> float | None:
        """Seconds until the end at the pace so far, the winner's confirmation included. None where nobody can tell."""
        if self.search_started is None:
            return None
        now, newest = (
            time.monotonic(),
            [t.evaluation for t in self.population.trials[-20:] if t.evaluation and t.score_us],
        )
        took = [each.wall_s for each in newest if each.wall_s]
        confirm_s = _CONFIRMING * median(took) if took and self.schedule.confirm else 0.0
        if self.search_ended is not None:
            return max(self.search_ended + confirm_s - now, 0.0) or None
        elapsed = now - self.search_started
        ends = [
            60 * self.schedule.caps[name] * (1 - share) if name == "minutes" else elapsed / share - elapsed
            for name, share in self.used_shares().items()
            if share > 0 and (name == "minutes" or self.tally.judged >= _TELLING)
        ]
        return max(min(ends), 0.0) + confirm_s if ends else None

    def end(self, reason: str) -> None:
        """Begin no more rounds, for this reason or an earlier one; what is in flight ends at its next step."""
        self.limits.ended = self.limits.ended or reason

    # -- what is counted, and seen ---------------------------------------------------------------

    def begin_round(self) -> Round:
        """Begin a round, and count it. BudgetError where a recording has no more of them."""
        begun = self.lineage.begin_round()
        with self.changed:
            self.tally.rounds += 1
            self.tally.planning.add(begun.name)
            self._judged_before[begun.name] = self.tally.judged
        return begun

    def round_over(self, begun: Round, trouble: str = "") -> None:
        """Count a round that is over: whether it brought a trial. trouble: why it could not be planned."""
        with self.changed:
            self.tally.trouble = trouble or self.tally.trouble
            self.tally.planning.discard(begun.name)
            brought = self.tally.judged > self._judged_before.pop(begun.name)
            self.tally.barren = 0 if brought else self.tally.barren + 1

    def reserve(self, wanted: int, plan: Plan | None = None, cause: str = "") -> int:
        """How many of so many questions to the judge the budget covers; they are taken from it.

        With a plan they are its experiments: the round `cause` has planned, and brings no more than these.
        """
        with self.changed:
            granted = int(max(min(wanted, self.tally.most - self.tally.dispatched), 0))
            self.tally.dispatched += granted
            if plan:
                self.tally.planning.discard(cause)
                self.leave_step()
            return granted

    def give_back(self, count: int) -> None:
        """Return what was reserved and not used."""
        with self.changed:
            self.tally.dispatched -= count

    def tell(self, event: Event) -> None:
        """Count what has happened, and show it."""
        with self.changed:
            match event:
                case Began(step, trial):
                    self.doing[threading.get_ident()] = (step.value, trial.id if trial else "")
                case Checked() | Judged():
                    self._count(event)
        for listener in self._listeners:
            listener(event, self)

    def _count(self, event: Checked | Judged) -> None:
        tally, trial, evaluation = self.tally, event.trial, event.trial.evaluation
        tally.judge_s += evaluation.wall_s if evaluation else 0.0
        if isinstance(event, Checked):
            tally.checks += 1
        else:
            self.doing.pop(threading.get_ident(), None)
            if self.search_started is None:  # a seed, or what an earlier call left to be judged again
                return
            tally.tried += trial.kernel is not None
            tally.trouble = trial.failure or tally.trouble
            if trial.repeats:
                tally.repeats += 1
                tally.dispatched -= 1
                return
            tally.judged += 1
        if evaluation:
            failed = evaluation.verdict is Verdict.HARNESS
            tally.harness_errors = tally.harness_errors + 1 if failed else 0
            tally.trouble = evaluation.reason if failed else tally.trouble

    def leave_step(self) -> None:
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

    def _announce(self, what: str) -> None:
        self.judge_stopped = self.judge_stopped or self.stages.evaluate.stop()
        for listener in self._listeners:
            listener(Ending(what), self)
