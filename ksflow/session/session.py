"""What runs at once, and for how long: stale leaders and seeds, rounds until a budget is spent, then the winner again.

A round is a thread, and so is each of its trials; they wait for models side by side and for the device in a queue.
Ctrl-C once: what is in flight is finished and kept, then the run ends as usual, with its table and its winner. Twice:
it is abandoned, and the next run takes it up.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType

from ksflow import loop
from ksflow.errors import BudgetError, ConfigError, NothingTried, StageError
from ksflow.lineage import Round
from ksflow.lineage.commit_order import ReplayedOrder
from ksflow.lineage.recorded_run import RecordedRun
from ksflow.loop import Lab
from ksflow.protocols import SIGN_OF_LIFE, Answerer, calling, record
from ksflow.records import Origin, Population, Seed, Trial
from ksflow.session import confirm, scheduler, startup
from ksflow.session.budget import Meter
from ksflow.session.estimate import estimate
from ksflow.session.schedule import Outcome, Schedule
from ksflow.session.scheduler import Job

_BARREN_ROUNDS = 3
"""Rounds in a row without a trial after which a run gives up, for each round that may be in flight."""
_A_ROUND = 3
"""Experiments that a round is expected to bring."""
_STEPS = ("select", "design", "write", "evaluate", "digest", "confirm")
_LOOK_S = 0.2


class Session:
    """One call of a run: its counters, its budgets, its way out. `show` is told of every step.

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
        self.device = scheduler.Queue(getattr(lab.evaluate, "devices", 1))
        self.lab = replace(
            lab,
            repairs=schedule.repairs,
            repeats=schedule.repeats,
            watch=self._watch,
            stop=self._stop,
            reserve_slots=self._reserve_slots,
            map_parallel=scheduler.map_parallel,
            device=self.device,
        )
        self.meter = Meter(lab.transcript, schedule.caps, self._stop)
        self.started = time.monotonic()
        self.rounds = self.judged = self.repeats = 0
        self.tried = 0
        """Experiments that came to a kernel."""
        self._trouble = ""
        """Why the newest experiment, or the newest round, came to nothing."""
        self.doing: dict[int, tuple[str, str]] = {}
        """Thread -> (step, trial): what is in flight."""
        self._show = show
        self._changed = threading.Condition(threading.RLock())
        self._showing = threading.RLock()
        self._interrupted = threading.Event()
        self._awake = threading.Event()
        """Set with the first Ctrl-C, or when none can come any more."""
        self._interrupts = 0
        self._searching = False
        self._baselines: frozenset[str] = frozenset()
        self._exact: ReplayedOrder | None = None
        self._running: list[Job] = []
        self._planning = self._dispatched = self._barren = self._seen = 0
        self._judging_s, self._ended = 0.0, ""
        self._error: BaseException | None = None

    def run(self, seeds: tuple[Seed, ...], settings: str = "") -> Outcome:
        """Search until a budget is spent or the user has had enough. Raises ConfigError, LineageError, StageError.

        settings: what is kept with the session, for whoever wants to repeat it.
        """
        meter = self.meter.reserve if self.recorded is None else None
        with self.interruptible(), calling(record=self.lab.transcript.keep, meter=meter):
            self._open(settings)
            self._greet()
            self._baselines = startup.baselines(self.lab, seeds)
            startup.start(self.lab, seeds, self._interrupted.is_set)
            self._baselines = startup.baselines(self.lab, seeds)
            began, before = time.monotonic(), self.device.busy_s
            reason = self._search()
            ended = time.monotonic()
            busy = (self.device.busy_s - before) / max(ended - began, 1e-9)
            if self.schedule.confirm and (self._exact is None or self._exact.missing):
                confirm.confirm(self.lab, lambda: self.baselines, self._interrupted.is_set)
            self.lab.lineage.release_all()
        best = self.known.best
        if best is None:
            raise ConfigError(startup.no_start(self.known))
        if self._exact and self._exact.missing:
            raise ConfigError(self._exact.astray)
        return Outcome(
            population=self.known,
            best=best,
            baselines=self.baselines,
            reason=reason,
            judged=self.judged,
            repeats=self.repeats,
            idle=self._idle(reason),
            search_s=ended - self.started,
            wall_s=time.monotonic() - self.started,
            busy=busy,
            cost=self.lab.transcript.total,
        )

    def _idle(self, reason: str) -> str:
        """Why this call has tried nothing; empty where it has, or where it was not asked to."""
        asked = self._exact is None and all(self.schedule.caps.get(name, 1) for name in ("evaluations", "rounds"))
        return ": ".join(filter(None, (reason, self._trouble))) if asked and not self.tried else ""

    @property
    def known(self) -> Population:
        """The population as this process knows it."""
        return self.lab.lineage.known

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """The accepted baselines, fastest first."""
        return tuple(t for t in self.known.ranked if t.id in self._baselines)

    def used(self) -> dict[str, float]:
        """Budget -> the share of it that is used."""
        spent = {
            "evaluations": float(self.judged),
            "rounds": float(self.rounds),
            "minutes": (time.monotonic() - self.started) / 60,
            "stages.evaluator.minutes": self._judging_s / 60,
        }
        caps = self.schedule.caps
        shares = {name: spent[name] / most if most else 1.0 for name, most in caps.items() if name in spent}
        return {**shares, **self.meter.used()}

    # -- the search ------------------------------------------------------------------------------

    def _open(self, settings: str) -> None:
        lineage = self.lab.lineage
        if self.recorded is None:
            lineage.open_session(settings, self.lab.initial_notes)
        elif getattr(self.lab.evaluate, "recorded", False):
            self._exact = lineage.open_session(settings, self.lab.initial_notes, self.recorded.exactly)
        else:
            lineage.open_session(settings, self.lab.initial_notes, self.recorded.judged_anew)
        self.lab = replace(self.lab, initial_notes=lineage.initial_notes)

    def _greet(self) -> None:
        """Have every model give a sign of life, so that no seed is judged for a run that can try nothing.

        NothingTried where one does not answer; ConfigError where it cannot be as configured.
        """
        with self.lab.transcript.about(SIGN_OF_LIFE):
            if self._exact and self.recorded:
                for call in self.recorded.calls():
                    if call.stage == SIGN_OF_LIFE:
                        record(call)
            for model in self.models if self.recorded is None else ():
                try:
                    with suppress(BudgetError):  # too dear: the estimate says what would be needed
                        model.greet()
                except StageError as error:
                    raise NothingTried(error.reason) from error

    def _search(self) -> str:
        """Rounds side by side, until nothing more may begin and nothing is in flight. Why it ended."""
        self._estimate()
        self._searching, self._seen = True, self.lab.lineage.digested
        while self._advance():
            pass
        if self._error:
            raise self._error
        return self._ended or self._spent() or "interrupted"

    def _estimate(self) -> None:
        """Say what the search may cost, and that the caps can be kept. ConfigError."""
        if self.models and self.recorded is None:
            most = self.schedule.caps.get("evaluations")
            found = estimate(self.lab, None if most is None else int(most))
            for question in found.questions:
                self.meter.check(question)
            if found.questions:
                self._watch(str(found), None)

    def _advance(self) -> bool:
        """Begin a round, or wait for one; False when all is over."""
        with self._changed:
            self._running = [job for job in self._running if not job.over]
            if not self._may_begin():
                if self._running:
                    self._changed.wait(_LOOK_S)
                return bool(self._running)
        if left := self.lab.lineage.unfinished():
            room = self._reserve_slots(len(left))
            for trial in left[:room]:
                self._begin(partial(loop.attempt, self.lab, trial))
            for trial in left[room:]:
                self.lab.lineage.release(trial)
            return True
        try:
            turn = self.lab.lineage.begin_round()
        except BudgetError as error:  # a recording that has no more rounds
            self._ended = str(error)
            return True
        every, known = self.schedule.digest_every, len(turn.known.trials)
        learning, self._seen = known // every > self._seen // every, known
        with self._changed:
            self.rounds += 1
            self._planning += 1
        self._begin(partial(self._round, turn, learning))
        return True

    def _may_begin(self) -> bool:
        if self._stop() or self._ended:
            return False
        if self._exact is not None:
            return True
        most = self.schedule.caps.get("rounds")
        return (
            len(self._running) < self.schedule.rounds_in_flight
            and (most is None or self.rounds < most)
            and self._left() > self._planning * _A_ROUND
        )

    def _begin(self, work: Callable[[], None]) -> None:
        self._running.append(Job(work, self._over))

    def _round(self, turn: Round, learning: bool) -> None:
        planned = threading.Event()

        def map_parallel(do: Callable[[Trial], None], trials: Iterable[Trial]) -> None:
            self._planned(planned)
            scheduler.map_parallel(do, trials)

        before = self.judged
        try:
            loop.run_round(replace(self.lab, map_parallel=map_parallel), turn, learning)
        except StageError as error:
            if error.stage == "evaluator":
                raise
            self._trouble = str(error)
            self._watch(f"no plan: {error}", None)
        finally:
            self._planned(planned)
            self._count(self.judged > before)

    def _planned(self, event: threading.Event) -> None:
        """A round needs no more room than it has taken."""
        with self._changed:
            self.doing.pop(threading.get_ident(), None)
            self._planning -= not event.is_set()
            event.set()
            self._changed.notify_all()

    def _count(self, fruitful: bool) -> None:
        with self._changed:
            self._barren = 0 if fruitful else self._barren + 1
            if self._barren >= _BARREN_ROUNDS * self.schedule.rounds_in_flight and self.recorded is None:
                self._ended = self._ended or f"{self._barren} rounds in a row brought no trial"

    def _over(self, job: Job) -> None:
        """A thread has come to its end."""
        with self._changed:
            self.doing.pop(threading.get_ident(), None)
            if isinstance(job.error, BudgetError):
                self._ended = self._ended or (str(job.error) if self._exact is None else "")
            elif job.error is not None:
                self._error = self._error or job.error
            self._changed.notify_all()

    # -- budgets ---------------------------------------------------------------------------------

    def _left(self) -> float:
        """Experiments that may yet be dispatched."""
        most = self.schedule.caps.get("evaluations")
        return math.inf if most is None or self._exact is not None else max(most - self._dispatched, 0)

    def _reserve_slots(self, wanted: int) -> int:
        """How many of so many experiments may be dispatched; they are counted from here on."""
        with self._changed:
            granted = int(min(self._left(), wanted))
            self._dispatched += granted
            return granted

    def _spent(self, but: str = "") -> str | None:
        full = [name for name, share in self.used().items() if share >= 1 and name != but]
        return f"{full[0]}={self.schedule.caps[full[0]]:g} used up" if full else None

    def _stop(self) -> bool:
        if self._interrupted.is_set() or self._error:
            return True
        return self._searching and self._exact is None and bool(self._ended or self._spent(but="rounds"))

    # -- what is seen ----------------------------------------------------------------------------

    def _watch(self, what: str, trial: Trial | None) -> None:
        with self._changed:
            me = threading.get_ident()
            if what == "done" and trial:
                self.doing.pop(me, None)
                self._judging_s += trial.evaluation.wall_s if trial.evaluation else 0.0
                if trial.origin is not Origin.SEED:
                    self._tally(trial)
            elif what in _STEPS:
                self.doing[me] = (what, trial.id if trial else "")
        with self._showing:  # not the other: showing reads the lineage, and whoever writes there asks for room
            self._show(what, trial, self)

    def _tally(self, trial: Trial) -> None:
        self.tried += trial.kernel is not None
        self._trouble = trial.failure or self._trouble
        if trial.repeats:
            self.repeats += 1
            self._dispatched -= 1
        elif trial.evaluation is None or "renewed" not in trial.evaluation.evidence:
            self.judged += 1

    @property
    def interrupted(self) -> bool:
        """Whether the user has pressed Ctrl-C."""
        return self._interrupts > 0

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Meanwhile Ctrl-C ends the search at the next step; a second one raises KeyboardInterrupt.

        May be entered again by a caller within it. Does nothing outside the main thread.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) == self._interrupt:
            yield
            return
        before = signal.signal(signal.SIGINT, self._interrupt)
        notice = Job(self._say_interrupted)
        try:
            yield
            self._awake.set()
            notice.join()
        except KeyboardInterrupt:
            self._show("abandon", None, self)
            raise
        finally:
            self._awake.set()
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Does next to nothing: it may run in the middle of anything, such as a write to the terminal."""
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self._interrupted.set()
        self._awake.set()

    def _say_interrupted(self) -> None:
        self._awake.wait()
        if self._interrupted.is_set():
            with self._showing:
                self._show("interrupt", None, self)
