"""A run by itself: stale leaders and seeds, rounds until there is a reason to stop, then the winner again."""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from ksflow.errors import BudgetError, ConfigError, NothingTried, StageError, stage_boundary
from ksflow.lineage import Round
from ksflow.loop import startup
from ksflow.loop.confirm import confirm
from ksflow.loop.estimate import estimate, first_questions
from ksflow.loop.events import Notice
from ksflow.loop.queue import ThreadJob, map_parallel
from ksflow.loop.round import attempt, run_round
from ksflow.loop.run import Run
from ksflow.loop.schedule import RunOutcome
from ksflow.loop.stops import INTERRUPTED
from ksflow.protocols import SIGN_OF_LIFE, override_call
from ksflow.records import Seed, Trial

_A_ROUND = 3  # experiments that a round is expected to bring
_LOOK_S = 0.2


def search(run: Run, seeds: tuple[Seed, ...], settings: str = "", began: float | None = None) -> RunOutcome:
    """Search until there is a reason to stop. Raises ConfigError, LineageError, StageError, NothingTried.

    settings: what is kept with the session, for whoever wants to repeat it. began: the `time.monotonic()` at which the
    command began.
    """
    meter = run.meter.reserve if run.recorded is None else None
    keep = run.transcript.keep
    took = _Stopwatch(began)
    with run.handle_signals(), override_call(record=keep, meter=meter, unanswered=run.wait_for_person):
        run.open(settings)
        _greet(run)
        _compile_first(run, seeds)
        run.find_baselines(seeds)
        took.end("set-up")
        startup.start(run, seeds)
        run.find_baselines(seeds)
        took.end("seeds")
        _estimate(run)
        took.end("set-up")
        run.begin_search()
        early, before = _used_up_before(run, took["seeds"]), run.device.busy_s
        Rounds(run).go_on()
        reason = f"{run.limits.reason}{early}"
        took.end("search")
        run.search_ended = time.monotonic()
        busy = (run.device.busy_s - before) / max(took["search"], 1e-9)
        if run.schedule.confirm and (run.exact is None or run.exact.missing_step):
            try:
                confirm(run)
            except BudgetError as error:  # a recorded session was abandoned there
                run.tell(Notice(f"not confirmed: {error}"))
        run.lineage.release_all()
        took.end("confirmation")
    return _outcome(run, reason, took, busy)


class _Stopwatch(dict[str, float]):
    """Seconds of each part of a call, one after the other from `began` on."""

    def __init__(self, began: float | None) -> None:
        super().__init__()
        self._since = time.monotonic() if began is None else began

    def end(self, part: str) -> None:
        """Count the time since the last part's end for this one."""
        now = time.monotonic()
        self[part] = self.get(part, 0.0) + now - self._since
        self._since = now


def _used_up_before(run: Run, seeds_s: float) -> str:
    """What has used a budget in minutes up before the first round; empty where none is used up."""
    if "minutes=" not in run.limits.stop_reason(at_once=True) or not run.limits.hold:
        return ""
    others_s = time.monotonic() - run.tally.started - seeds_s
    return " while seeds were judged" if seeds_s > others_s else " before the first round"


def _greet(run: Run) -> None:
    """Have every model give a sign of life, so that no seed is judged for a run that can try nothing.

    NothingTried where one does not answer; ConfigError where it cannot be as configured.
    """
    with run.transcript.attribute_calls(SIGN_OF_LIFE):
        for model in run.models if run.recorded is None else ():
            try:
                with suppress(BudgetError):  # too dear: the estimate says what would be needed
                    model.greet()
            except StageError as error:
                raise NothingTried(error.reason) from error


def _compile_first(run: Run, seeds: tuple[Seed, ...]) -> None:
    """Compile a seed of each language that was not judged yet. ConfigError where a compiler is missing."""
    judged = {trial.kernel.digest for trial in run.population.trials if trial.kernel and trial.evaluation}
    first = {seed.kernel.language: seed.kernel for seed in seeds[::-1] if seed.kernel.digest not in judged}
    for kernel in first.values():
        with suppress(StageError), stage_boundary("evaluator"):  # which fails again where the kernel is judged
            run.stages.evaluate.prepare(run.problem, kernel)


def _estimate(run: Run) -> None:
    """Say what the models will be asked. ConfigError where a budget does not cover a first call."""
    if run.models and run.recorded is None:
        most = run.schedule.caps.get("evaluations")
        questions = first_questions(run)
        for question in questions:
            run.meter.check(question)
        if questions:
            run.tell(Notice(estimate(questions, None if most is None else int(most))))


def _outcome(run: Run, reason: str, took: Mapping[str, float], busy: float) -> RunOutcome:
    """How it ended. ConfigError where there is no winner, or where a replay went another way."""
    best, tally = run.population.best, run.tally
    if best is None:
        raise ConfigError(startup.no_start(run.population))
    if run.exact and run.exact.missing_step:
        raise ConfigError(run.exact.divergence)
    asked = run.exact is None and all(run.schedule.caps.get(name, 1) for name in ("evaluations", "rounds"))
    return RunOutcome(
        population=run.population,
        best=best,
        baselines=run.baselines,
        reason=reason,
        judged=tally.judged,
        repeats=tally.repeats,
        idle="" if tally.tried or not asked else _idle(reason, tally.trouble, best),
        took=took,
        busy=busy,
        cost=run.transcript.total,
    )


def _idle(reason: str, trouble: str, best: Trial) -> str:
    if reason == INTERRUPTED:
        return f"stopped before the first experiment; fastest so far {best.id}, as before"
    return reason if trouble in reason else f"{reason}: {trouble}"


class Rounds:
    """Rounds side by side, and what an earlier call left. A round is a thread, and so is each of its trials."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._running: list[ThreadJob] = []
        self._digested = run.lineage.digested_count  # trials that were known when notes were last asked for

    def go_on(self) -> None:
        """Until nothing more may begin and nothing is in flight. Raises what a round could not go on from."""
        while self._advance():
            pass
        if self._run.limits.error:
            raise self._run.limits.error

    def _advance(self) -> bool:
        """Begin a round, or wait for one; False when all is over."""
        run = self._run
        with run.changed:
            self._running = [job for job in self._running if not job.over]
            if not self._may_begin():
                if self._running:
                    run.changed.wait(_LOOK_S)
                return bool(self._running)
        if left := run.lineage.claim_unfinished():
            slots = run.reserve(min(len(left), _A_ROUND))  # what was left counts as rounds in flight do
            for trial in left[slots:]:
                run.lineage.release(trial)
            self._running.append(ThreadJob(partial(map_parallel, partial(attempt, run), left[:slots]), self._job_over))
            return True
        try:
            begun = run.begin_round()
        except BudgetError as error:  # a recording that has no more rounds
            run.end(str(error))
            return True
        every, known = run.schedule.digest_every, len(begun.population.trials)
        learning, self._digested = known // every > self._digested // every, known
        self._running.append(ThreadJob(partial(self._round, begun, learning), self._job_over))
        return True

    def _may_begin(self) -> bool:
        run = self._run
        if run.limits.ended or run.limits.is_reached():
            return False
        if run.exact is not None:
            return True
        return (
            len(self._running) < run.schedule.rounds_in_flight
            and not run.limits.stop_reason()
            and run.tally.most - run.tally.dispatched > len(run.tally.planning) * _A_ROUND
        )

    def _round(self, begun: Round, learning: bool) -> None:
        run, trouble = self._run, ""
        try:
            run_round(run, begun, learning)
        except StageError as error:
            trouble = str(error)
            run.tell(Notice(f"no plan: {trouble}"))
        finally:
            run.round_over(begun, trouble)

    def _job_over(self, job: ThreadJob) -> None:
        run = self._run
        if isinstance(job.error, BudgetError):
            run.end(str(job.error) if run.exact is None else "")
        elif job.error is not None:
            run.limits.error = run.limits.error or job.error  # the first one counts
        run.leave_step()
