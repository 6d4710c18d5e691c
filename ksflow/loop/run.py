"""What runs at once, and for how long: stale leaders and seeds, rounds until a budget is spent, then the winner again.

A round is a thread, and so is each of its trials; they wait for models side by side and for the device in a queue.
Ctrl-C once: what is in flight is finished and kept, then the run ends as usual, with its table and its winner; nobody
waits for a person's answer any more. Twice: it is abandoned, and the next run takes it up.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from ksflow.errors import BudgetError, ConfigError, NothingTried, StageError
from ksflow.lineage import Round
from ksflow.lineage.history import RecordedRun
from ksflow.lineage.locks import Turns
from ksflow.loop import confirm, startup
from ksflow.loop.budget import Meter
from ksflow.loop.estimate import estimate
from ksflow.loop.queue import DeviceQueue, Interruption, Job, map_parallel
from ksflow.loop.round import Control, Lab, attempt, run_round
from ksflow.loop.schedule import Outcome, Schedule
from ksflow.protocols import SIGN_OF_LIFE, Answerer, calling
from ksflow.records import Population, Seed, Trial

_BARREN_ROUNDS = 3
"""Rounds in a row without a trial after which a run gives up, for each round that may be in flight."""
_A_ROUND = 3
"""Experiments that a round is expected to bring."""
_STEPS = ("select", "design", "write", "evaluate", "digest", "confirm")
_LOOK_S = 0.2


@dataclass
class _Counts:
    """How far the search has come."""

    planning: int = 0
    """Rounds that have not said yet how many experiments they bring."""
    dispatched: int = 0
    barren: int = 0
    """Rounds in a row without a trial."""
    digested: int = 0
    """Trials that were known when notes were last asked for."""
    judging_s: float = 0.0
    ended: str = ""
    """Why no more rounds begin."""
    trouble: str = ""
    """Why the newest experiment, or the newest round, came to nothing."""
    error: BaseException | None = None


class Session:
    """One call of a run: its counters and its budgets. `show` is told of every step.

    recorded: a recorded run to be replayed. models: those that the stages call; each is asked for a sign of life before
    the seeds are judged, and what the search may cost is estimated.
    """

    def __init__(
        self,
        schedule: Schedule,
        lab: Lab,
        show: Callable[[str, Trial | None, "Session"], None],
        recorded: RecordedRun | None = None,
        models: Sequence[Answerer] = (),
    ) -> None:
        self.schedule, self.recorded, self.models = schedule, recorded, models
        self.device = DeviceQueue(getattr(lab.evaluate, "devices", 1))
        self.lab = replace(
            lab,
            control=Control(
                repairs=schedule.repairs,
                repeats=schedule.repeats,
                watch=self._watch,
                stop=self._stop,
                reserve_slots=self._reserve_slots,
                map_parallel=map_parallel,
                device=self.device,
            ),
        )
        self.meter = Meter(lab.transcript, schedule.caps, self._stop)
        self.started = time.monotonic()
        self.rounds = self.judged = self.repeats = 0
        self.checks = 0
        """Questions to the judge about kernels that were still being written."""
        self.search_started: float | None = None
        """When the first round could begin: the seeds were judged by then."""
        self.tried = 0
        """Experiments that came to a kernel."""
        self.doing: dict[int, tuple[str, str]] = {}
        """Thread -> (step, trial): what is in flight."""
        self.unanswered = 0
        """Questions to a person that wait, or waited when Ctrl-C was pressed."""
        self._show = show
        self._changed = threading.Condition(threading.RLock())
        """Guards what is counted and what runs."""
        self._showing = threading.RLock()
        self._interruption = Interruption(self._announce)
        self._baselines: frozenset[str] = frozenset()
        self._exact: Turns | None = None
        """The recorded steps, where they are repeated one by one."""
        self._searching = False
        self._running: list[Job] = []
        self._counts = _Counts()

    def run(self, seeds: tuple[Seed, ...], settings: str = "") -> Outcome:
        """Search until a budget is spent or the user has had enough. Raises ConfigError, LineageError, StageError.

        settings: what is kept with the session, for whoever wants to repeat it.
        """
        interrupted = self._interruption.requested.is_set
        meter = self.meter.reserve if self.recorded is None else None
        keep = self.lab.transcript.keep
        with self.interruptible(), calling(record=keep, meter=meter, unanswered=self._wait_for_person):
            self._open(settings)
            self._greet()
            self._baselines = startup.baselines(self.lab, seeds)
            startup.start(self.lab, seeds, interrupted)
            self._baselines = startup.baselines(self.lab, seeds)
            began, before = time.monotonic(), self.device.busy_s
            self.search_started = began
            reason = self._search()
            ended = time.monotonic()
            busy = (self.device.busy_s - before) / max(ended - began, 1e-9)
            if self.schedule.confirm and (self._exact is None or self._exact.missing):
                try:
                    confirm.confirm(self.lab, lambda: self.baselines, interrupted)
                except BudgetError as error:  # a recorded session was abandoned there
                    self.lab.control.watch(f"not confirmed: {error}", None)
            self.lab.lineage.release_all()
        best = self.known.best
        if best is None:
            raise ConfigError(startup.no_start(self.known))
        if self._exact and self._exact.missing:
            raise ConfigError(self._exact.divergence)
        asked = self._exact is None and all(self.schedule.caps.get(name, 1) for name in ("evaluations", "rounds"))
        return Outcome(
            population=self.known,
            best=best,
            baselines=self.baselines,
            reason=reason,
            judged=self.judged,
            repeats=self.repeats,
            idle=": ".join(filter(None, (reason, self._counts.trouble))) if asked and not self.tried else "",
            search_s=ended - self.started,
            wall_s=time.monotonic() - self.started,
            busy=busy,
            cost=self.lab.transcript.total,
        )

    @property
    def known(self) -> Population:
        """The population as this process knows it."""
        return self.lab.lineage.known

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """The accepted baselines, fastest first."""
        known = self.known
        found = Population(tuple(known.by_id[id] for id in sorted(self._baselines) if id in known.by_id))
        return tuple(found.ranked)

    @property
    def interrupted(self) -> bool:
        """Whether the user has pressed Ctrl-C."""
        return self._interruption.requested.is_set()

    def interruptible(self) -> AbstractContextManager[None]:
        """Meanwhile Ctrl-C ends the search at the next step; a second one raises KeyboardInterrupt."""
        return self._interruption.handled()

    def used(self) -> dict[str, float]:
        """Budget -> the share of it that is used."""
        spent = {
            "evaluations": float(self.judged + self.checks),
            "rounds": float(self.rounds),
            "minutes": (time.monotonic() - self.started) / 60,
            "stages.evaluator.minutes": self._counts.judging_s / 60,
        }
        caps = self.schedule.caps
        shares = {name: spent[name] / most if most else 1.0 for name, most in caps.items() if name in spent}
        return {**shares, **self.meter.used()}

    def left_s(self) -> float | None:
        """Seconds until the first budget is spent, at the pace of the search so far. None while there is none yet."""
        if self.search_started is None:
            return None
        elapsed = time.monotonic() - self.search_started
        found = [
            60 * self.schedule.caps[name] * (1 - share) if name == "minutes" else elapsed / share - elapsed
            for name, share in self.used().items()
            if share > 0
        ]
        return max(min(found), 0.0) if found else None

    # -- the search ------------------------------------------------------------------------------

    def _open(self, settings: str) -> None:
        lineage, recorded = self.lab.lineage, None
        if self.recorded is not None:
            exact = getattr(self.lab.evaluate, "recorded", False)
            recorded = partial(self.recorded.open, anew=not exact)
        replayed = lineage.open_session(settings, self.lab.initial_notes, recorded)
        self._exact = replayed if replayed and replayed.ordered else None
        self.lab = replace(self.lab, initial_notes=lineage.initial_notes)

    def _greet(self) -> None:
        """Have every model give a sign of life, so that no seed is judged for a run that can try nothing.

        NothingTried where one does not answer; ConfigError where it cannot be as configured.
        """
        with self.lab.transcript.about(SIGN_OF_LIFE):
            for model in self.models if self.recorded is None else ():
                try:
                    with suppress(BudgetError):  # too dear: the estimate says what would be needed
                        model.greet()
                except StageError as error:
                    raise NothingTried(error.reason) from error

    def _search(self) -> str:
        """Rounds side by side, until nothing more may begin and nothing is in flight. Why it ended."""
        if self.models and self.recorded is None:
            most = self.schedule.caps.get("evaluations")
            found = estimate(self.lab, None if most is None else int(most))
            for question in found.questions:
                self.meter.check(question)
            if found.questions:
                self._watch(str(found), None)
        self._searching, self._counts.digested = True, self.lab.lineage.digested
        while self._advance():
            pass
        if self._counts.error:
            raise self._counts.error
        return self._counts.ended or self._spent() or ("interrupted" if self.interrupted else "nothing more may begin")

    def _advance(self) -> bool:
        """Begin a round, or wait for one; False when all is over."""
        with self._changed:
            self._running = [job for job in self._running if not job.over]
            if not self._may_begin():
                if self._running:
                    self._changed.wait(_LOOK_S)
                return bool(self._running)
        if left := self.lab.lineage.unfinished():
            slots = self._reserve_slots(len(left))
            for trial in left[:slots]:
                self._running.append(Job(partial(attempt, self.lab, trial), self._job_over))
            for trial in left[slots:]:
                self.lab.lineage.release(trial)
            return True
        try:
            begun = self.lab.lineage.begin_round()
        except BudgetError as error:  # a recording that has no more rounds
            self._counts.ended = str(error)
            return True
        every, known = self.schedule.digest_every, len(begun.known.trials)
        learning, self._counts.digested = known // every > self._counts.digested // every, known
        with self._changed:
            self.rounds += 1
            self._counts.planning += 1
        self._running.append(Job(partial(self._run_round, begun, learning), self._job_over))
        return True

    def _may_begin(self) -> bool:
        if self._stop() or self._counts.ended:
            return False
        if self._exact is not None:
            return True
        most = self.schedule.caps.get("rounds")
        return (
            len(self._running) < self.schedule.rounds_in_flight
            and (most is None or self.rounds < most)
            and self._left() > self._counts.planning * _A_ROUND
        )

    def _run_round(self, begun: Round, learning: bool) -> None:
        planned = threading.Event()

        def end_planning() -> None:
            """A round needs no more slots than it has taken."""
            with self._changed:
                self.doing.pop(threading.get_ident(), None)
                self._counts.planning -= not planned.is_set()
                planned.set()
                self._changed.notify_all()

        def planned_map(do: Callable[[Trial], None], trials: Iterable[Trial]) -> None:
            end_planning()
            map_parallel(do, trials)

        before = self.judged
        try:
            control = replace(self.lab.control, map_parallel=planned_map)
            run_round(replace(self.lab, control=control), begun, learning)
        except StageError as error:
            self._counts.trouble = str(error)
            self._watch(f"no plan: {error}", None)
        finally:
            end_planning()
            with self._changed:
                self._counts.barren = 0 if self.judged > before else self._counts.barren + 1
                if self._counts.barren >= _BARREN_ROUNDS * self.schedule.rounds_in_flight and self.recorded is None:
                    self._counts.ended = self._counts.ended or f"{self._counts.barren} rounds in a row brought no trial"

    def _job_over(self, job: Job) -> None:
        with self._changed:
            self.doing.pop(threading.get_ident(), None)
            if isinstance(job.error, BudgetError):
                self._counts.ended = self._counts.ended or (str(job.error) if self._exact is None else "")
            elif job.error is not None:
                self._counts.error = self._counts.error or job.error
            self._changed.notify_all()

    # -- budgets ---------------------------------------------------------------------------------

    def _left(self) -> float:
        """Experiments that may yet be dispatched."""
        most = self.schedule.caps.get("evaluations")
        return math.inf if most is None or self._exact is not None else max(most - self._counts.dispatched, 0)

    def _reserve_slots(self, wanted: int) -> int:
        """How many of so many experiments may be dispatched; they are counted from here on."""
        with self._changed:
            granted = int(min(self._left(), wanted))
            self._counts.dispatched += granted
            return granted

    def _spent(self, but: str = "") -> str | None:
        full = [name for name, share in self.used().items() if share >= 1 and name != but]
        checks = (
            f", {self.checks} of them as checks by the writer" if self.checks and full[:1] == ["evaluations"] else ""
        )
        return f"{full[0]}={self.schedule.caps[full[0]]:g} used up{checks}" if full else None

    def _stop(self) -> bool:
        if self.interrupted or self._counts.error:
            return True
        return self._searching and self._exact is None and bool(self._counts.ended or self._spent(but="rounds"))

    # -- what is seen ----------------------------------------------------------------------------

    def _watch(self, what: str, trial: Trial | None) -> None:
        with self._changed:
            me = threading.get_ident()
            if what in ("done", "checked") and trial:
                self._counts.judging_s += trial.evaluation.wall_s if trial.evaluation else 0.0
                self.checks += what == "checked"
            if what == "done" and trial:
                self.doing.pop(me, None)
                if self._searching:  # what an earlier session left to be judged again is none of this one's experiments
                    self._tally(trial)
            elif what in _STEPS:
                self.doing[me] = (what, trial.id if trial else "")
        with self._showing:  # not the other: showing reads the lineage, and whoever writes there asks for slots
            self._show(what, trial, self)

    def _tally(self, trial: Trial) -> None:
        self.tried += trial.kernel is not None
        self._counts.trouble = trial.failure or self._counts.trouble
        if trial.repeats:
            self.repeats += 1
            self._counts.dispatched -= 1
        else:
            self.judged += 1

    @contextmanager
    def _wait_for_person(self) -> Iterator[Callable[[], bool]]:
        """Around the wait for an answer, which ends with the first Ctrl-C."""
        with self._changed:
            self.unanswered += 1
        try:
            yield lambda: self.interrupted
        finally:
            with self._changed:
                self.unanswered -= not self.interrupted

    def _announce(self, what: str) -> None:
        if what == "abandon":  # whoever shows something may never end
            self._show(what, None, self)
            return
        with self._showing:
            self._show(what, None, self)
