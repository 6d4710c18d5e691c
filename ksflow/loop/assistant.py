"""Ask and tell: a run that is driven from outside, by an assistant or a Python program. Judge, lineage and budget stay.

What the caller does goes on record as the stages' work does: the selection and the plan before anything acts on them,
each kernel before it is judged, each verdict when it is known. Nothing that `account` returns tells what a kernel's
author must not know: no contents of inputs, no expected outputs, no seeds, no paths of the judge.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ksflow.errors import ConfigError, KsflowError
from ksflow.kernels.source import fingerprint
from ksflow.lineage import Round
from ksflow.lm.prompts import render
from ksflow.lm.prompts.failures import redacted_failure, without_paths
from ksflow.loop import startup
from ksflow.loop.confirm import confirm
from ksflow.loop.events import Checked
from ksflow.loop.queue import ThreadJob
from ksflow.loop.round import ask_judge, dispatch, judge
from ksflow.loop.run import Run
from ksflow.loop.tickets import Ticket, Tickets
from ksflow.protocols import Evaluator
from ksflow.records import Experiment, Kernel, Origin, Plan, Population, Seed, Selection, Trial, portfolio


class AskTell:
    """A run that is driven from outside: `plan` gives ids to experiments, `submit` has kernels judged.

    Any number of threads may use it. settings: kept with the session, which the constructor opens. profiler: builds an
    evaluator that adds a page of counters. Raises ConfigError, LineageError.
    """

    def __init__(
        self, run: Run, seeds: tuple[Seed, ...], settings: str = "", profiler: Callable[[], Evaluator] | None = None
    ) -> None:
        self.run, self.seeds = run, seeds
        self._tickets = Tickets()
        self._profiler = profiler
        self._planned: dict[str, Trial] = {}
        self._rounds: dict[str, Round] = {}  # trials that were planned here and are not judged -> their rounds
        self._lock = threading.RLock()  # held while what is counted or planned is looked at or changed
        self._started: ThreadJob | None = None
        run.open(settings)

    def begin(self) -> None:
        """Have the seeds judged meanwhile, and then what an earlier call of the run left."""

        def start() -> None:
            startup.start(self.run, self.seeds)
            self.run.begin_search()
            self.waiting()

        self._started = ThreadJob(start)

    def close(self) -> None:
        """Take no more questions, and wait for what the judge is at work on; the next call of the run goes on."""
        self.run.interrupt()
        if self._started:
            self._started.join()
        self._tickets.wait()
        self.run.lineage.release_all()

    def wait_seeds(self, wait_s: float = math.inf) -> None:
        """Wait until the seeds are judged. ConfigError where they are not in time, or where none was accepted."""
        end = time.monotonic() + wait_s
        while self._started and not self._started.over and time.monotonic() < end:
            time.sleep(0.05)
        if self._started and not self._started.over:
            known = len(self.run.population.trials)
            raise ConfigError(f"the seeds are being judged ({known} of {len(self.seeds)} done): ask again in a moment")
        if self._started and self._started.error:
            raise ConfigError(f"the run could not begin: {self._started.error}")

    @property
    def population(self) -> Population:
        """The finished trials of the run, those of other processes among them."""
        return self.run.lineage.population()

    @property
    def best(self) -> Trial:
        """The best accepted trial. Raises ConfigError where there is none."""
        population = self.population
        if population.best is None:
            raise ConfigError(startup.no_start(population))
        return population.best

    @property
    def reason(self) -> str:
        """Why the run takes no more kernels, such as "evaluations=20 used up"; empty while it does."""
        tally = self.run.tally
        return self.run.limits.stop_reason() or (self._spent if tally.dispatched >= tally.most else "")

    def plan(
        self,
        experiments: Sequence[Experiment],
        base: str = "",
        reference: str = "",
        rationale: str = "",
        avenues: Sequence[str] = (),
    ) -> tuple[Trial, ...]:
        """Put a selection and a plan on record, and return the trials of the picked experiments, at most three.

        base: the id of the trial that kernels start from, by default the best. reference: of the one to compare with.
        Raises ConfigError for ids that cannot be started from, and where a budget is used up.
        """
        selection = self._selection(base or self.best.id, reference, rationale)
        with self._lock:
            if reason := self.run.limits.stop_reason():
                raise _over(reason)
        plan = Plan(tuple(avenues), tuple(experiments), portfolio(tuple(experiments)), by="assistant")
        if not plan.picked:
            raise ConfigError("a plan needs an experiment")
        begun, trials = self.run.begin_round(), tuple[Trial, ...]()
        try:
            self.run.lineage.select(selection, begun.name)
            trials = dispatch(self.run, selection, plan, begun)
            self.run.give_back(len(trials))  # an experiment counts when its kernel comes
        finally:
            if not trials:
                self.run.round_over(begun)
        if not trials:
            raise _over(self._spent)
        with self._lock:
            self._planned |= {trial.id: trial for trial in trials}
            self._rounds |= {trial.id: begun for trial in trials}
        return trials

    def submit(self, kernel: Kernel, trial: str = "") -> str:
        """Commit a kernel and have it judged; the id for `result`. Raises ConfigError.

        trial: the id of the planned experiment that it is for. Without one the kernel is an experiment of its own,
        which starts from the best trial and is described by the kernel's report.
        """
        self._check_language(kernel)
        trial = trial or self.plan([Experiment(kernel.report or "a kernel from outside", "", (0.0, 0.0), 0.0)])[0].id
        with self._lock:
            planned = self._waiting_for_kernels()
            if trial not in planned:
                waiting = ", ".join(planned) or "none; plan makes some"
                raise ConfigError(f"no experiment {trial[:40]!r} waits for a kernel; waiting: {waiting}")
            self._reserve()
            draft = self._planned.pop(trial)
        with contextlib.ExitStack() as undo:
            undo.callback(self._wait_again, trial, draft)
            form = fingerprint.source_fingerprint(kernel)
            written = self.run.lineage.write(replace(draft, kernel=kernel, form=form))
            undo.pop_all()
        return self._judge(written)

    def _wait_again(self, trial: str, draft: Trial) -> None:
        with self._lock:
            self._planned[trial] = draft
            self.run.give_back(1)

    def evaluate(self, kernel: Kernel) -> str:
        """Have a kernel judged beside the best so far, which leaves no record; the id for `result`. ConfigError."""
        self._check_language(kernel)
        self._reserve()
        return self._tickets.ask("", "a kernel that is on no record", lambda name: self._verdict(name, kernel))

    def profile(self, name: str) -> str:
        """Have a trial's kernel judged with hardware counters; the id for `result`. ConfigError where none are."""
        trial = self.trial(name)
        if self._profiler is None or trial.kernel is None:
            raise ConfigError("nothing can be profiled here: hardware counters need evaluator=local and a GPU")
        kernel, profiler = trial.kernel, self._profiler
        self._reserve()
        return self._tickets.ask("", f"a profile of {trial.id}", lambda name: self._verdict(name, kernel, profiler()))

    def finish(self) -> str:
        """Have the winner judged once more beside the runner-up and the baselines; the id for `result`."""
        self.run.find_baselines(self.seeds)

        def answer(_: str) -> Trial | None:
            confirm(self.run)
            return self.run.population.best

        return self._tickets.ask("", "the winner once more", answer)

    def result(self, name: str) -> Trial:
        """Wait until the judge has answered, and return the trial with its evaluation. `name` is of `submit` and such.

        Raises ConfigError where there is no such question, KsflowError where nothing was judged.
        """
        ticket = self.ticket(name)
        ticket.over.wait()
        if ticket.trial is None:
            raise KsflowError(ticket.error)
        return ticket.trial

    def waiting(self) -> list[str]:
        """The ids of the experiments that wait for a kernel."""
        with self._lock:
            return list(self._waiting_for_kernels())

    def trial(self, name: str) -> Trial:
        """A trial of the run, by its id with or without leading zeros. ConfigError where there is none."""
        known = {trial.id: trial for trial in self.run.lineage.all_trials()}
        trial = known.get(f"{name:0>5}" if name.isdigit() else name)
        if trial is None:
            raise ConfigError(f"no trial {name[:40]!r}; there are {len(known)}, up to {max(known, default='none')}")
        return trial

    def ticket(self, name: str) -> Ticket:
        """The ticket of that name. ConfigError where there is none."""
        return self._tickets.find(name)

    def account(self, trial: Trial) -> str:
        """What became of a trial, as a prompt would tell it: analysis and times, or why it failed."""
        if trial.evaluation is None and not trial.failure:
            return f"Trial {trial.id} is {trial.verdict}; it has not been judged."
        if trial.evaluation and trial.evaluation.accepted:
            return without_paths(render.analysis(trial, self.run.population.step(trial)))
        return redacted_failure(trial)

    def _selection(self, base: str, reference: str, rationale: str) -> Selection:
        picks = [self.trial(base), self.trial(reference or base)]
        for trial in picks:
            if trial.score_us is None:
                raise ConfigError(f"trial {trial.id} is {trial.verdict}: base and reference must be accepted")
        return self.run.population.choose(picks[0].id, picks[1].id, rationale)

    def _waiting_for_kernels(self) -> dict[str, Trial]:
        """The experiments without a kernel, planned here or left by an earlier call, of which kernels are judged."""
        for trial in self.run.lineage.claim_unfinished(Origin.EXPERIMENT, Origin.REPAIR):
            if trial.kernel is None:
                self._planned[trial.id] = trial
            elif not self.run.limits.is_reached() and self.run.reserve(1):
                self._judge(trial)
            else:
                self.run.lineage.release(trial)
        return self._planned

    def _judge(self, written: Trial) -> str:
        def answer(_: str) -> Trial:
            try:
                return judge(self.run, written)
            finally:
                self.run.lineage.release(written)
                with self._lock:  # a round is over when the last of its trials is judged
                    begun = self._rounds.pop(written.id, None)
                    if begun and begun.name not in {other.name for other in self._rounds.values()}:
                        self.run.round_over(begun)

        return self._tickets.ask(written.id, f"kernel {written.id}", answer)

    def _check_language(self, kernel: Kernel) -> None:
        valid = self.run.problem.writable_languages
        if kernel.language not in valid:
            raise ConfigError(f"language {kernel.language!r} is none of this problem's: {', '.join(valid)}")

    @property
    def _spent(self) -> str:
        return f"evaluations={self.run.tally.most:g} used up"

    def _reserve(self) -> None:
        """One more question to the judge. Raises ConfigError where none may be asked."""
        with self._lock:
            if self.run.interrupted:
                raise ConfigError("the run is being closed")
            self._tickets.check_room()
            if reason := self.run.limits.stop_reason(at_once=True):
                raise _over(reason)
            if not self.run.reserve(1):
                raise _over(self._spent)

    def _verdict(self, name: str, kernel: Kernel, evaluate: Evaluator | None = None) -> Trial:
        evaluation = ask_judge(self.run, kernel, evaluate)
        trial = Trial(name, Origin.EXPERIMENT, kernel=kernel, evaluation=evaluation)
        self.run.tell(Checked(trial))
        return trial


def _over(reason: str) -> ConfigError:
    return ConfigError(f"{reason}: the run goes on when it is opened again; loop.KEY=MORE raises a budget")
