"""What runs, and for how long: seeds first, then rounds until a budget is spent, then the leaders are timed again.

One process, one trial at a time. Ctrl-C once: the trial at hand is finished and kept, then the run ends as usual;
twice: it ends at once, and the next run takes up what was in flight.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from ksflow import loop
from ksflow.errors import ConfigError, StageError
from ksflow.loop import Lab
from ksflow.records import Cost, Origin, Population, Seed, Trial, Verdict

_BARREN_ROUNDS = 3
"""Rounds in a row without a trial after which a run gives up."""
_RETIMINGS = 4
"""Leaders that are timed again at most, before one is called the winner."""


class Schedule:
    """Budgets of one call. Whichever is reached first ends the search; none means no limit.

    evaluations: experiments written and judged. repairs: how often a failed kernel goes back to the writer.
    digest_every: trials between two digests. confirm: whether the last two are timed again.
    """

    def __init__(  # noqa: PLR0913 - a budget each
        self,
        evaluations: int | None = 60,
        rounds: int | None = None,
        minutes: float | None = None,
        usd: float | None = None,
        repairs: int = 0,
        digest_every: int = 12,
        confirm: bool = True,
    ) -> None:
        self.budgets = {
            "evaluations": evaluations,
            "rounds": rounds,
            "minutes": minutes,
            "usd": usd,
        }
        for name, most in self.budgets.items():
            if most is not None and (not isinstance(most, int | float) or not most >= 0):
                raise ConfigError(f"loop.{name}={most} must be a number from 0 up, or null for no limit")
        if digest_every < 1 or repairs < 0:
            raise ConfigError("loop.digest_every must be at least 1, loop.repairs at least 0")
        self.repairs, self.digest_every, self.confirm = repairs, digest_every, confirm


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    population: Population
    best: Trial
    baselines: tuple[Trial, ...]
    reason: str
    judged: int
    search_s: float
    wall_s: float
    """Seconds of the whole call: the search, and timing the leaders again."""
    cost: Cost


class Session:
    """One call of a run: its counters, its budgets, its way out. `show` is told of every step."""

    def __init__(self, schedule: Schedule, lab: Lab, show: Callable[[str, Trial | None, "Session"], None]) -> None:
        self.schedule = schedule
        self.lab = replace(
            lab,
            repairs=schedule.repairs,
            digest_every=schedule.digest_every,
            watch=self._watch,
            stop=self._stop,
        )
        self.started = time.monotonic()
        self.rounds = 0
        self.judged = 0
        self._show = show
        self._interrupted = threading.Event()
        self._baselines: tuple[str, ...] = ()
        self._searching = False

    def run(self, seeds: tuple[Seed, ...]) -> Outcome:
        """Search until a budget is spent or the user has had enough. Raises ConfigError, LineageError, StageError."""
        with self._interruptible():
            self._start(seeds)
            reason = self._search()
            searched = time.monotonic() - self.started
            best = self.known.ranked[0]
            if self.schedule.confirm and not self._interrupted.is_set():
                best = self._confirm()
        wall = time.monotonic() - self.started
        cost = self.lab.transcript.total
        return Outcome(self.known, best, self.baselines, reason, self.judged, searched, wall, cost)

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
            "evaluations": self.judged,
            "rounds": self.rounds,
            "minutes": (time.monotonic() - self.started) / 60,
            "usd": self.lab.transcript.total.usd,
        }
        budgets = self.schedule.budgets
        return {name: spent[name] / most if most else 1.0 for name, most in budgets.items() if most is not None}

    # -- inside ----------------------------------------------------------------------------------

    def _start(self, seeds: tuple[Seed, ...]) -> None:
        lab, lineage = self.lab, self.lab.lineage
        _same_problem(lineage.population(), lab.problem.digest, lineage.run)
        loop.attempt(lab, lineage.unfinished())
        loop.attempt(lab, lineage.again(Verdict.HARNESS))
        while not lineage.store.claim(lineage.branch_of("seeds")):
            time.sleep(0.1)
        known = {trial.kernel.digest for trial in lineage.everything() if trial.kernel}
        new = [seed for seed in seeds if seed.kernel.digest not in known]
        drafts = [Trial("", Origin.SEED, kernel=seed.kernel, name=seed.name) for seed in new]
        planted = lineage.plant(drafts)
        lineage.store.release(lineage.branch_of("seeds"))
        digests = {seed.kernel.digest for seed in seeds if seed.baseline}
        self._baselines = tuple(t.id for t in lineage.everything() if t.kernel and t.kernel.digest in digests)
        loop.attempt(lab, planted)
        while not lineage.population().ranked and lineage.busy() and not self._interrupted.is_set():
            time.sleep(0.2)  # another process is judging the seeds
        if not self.known.ranked:
            raise ConfigError(_no_start(self.known))

    def _search(self) -> str:
        barren, self._searching = 0, True
        while not self._stop():
            before = self.judged
            try:
                loop.round_(self.lab, self._room())
            except StageError as error:
                if error.stage == "evaluator":
                    raise
                self._watch(f"no plan: {error}", None)
            self.rounds += 1
            barren = 0 if self.judged > before else barren + 1
            if barren == _BARREN_ROUNDS:
                return f"{barren} rounds in a row brought no trial"
        return self._spent() or "interrupted"

    def _confirm(self) -> Trial:
        """Time the leaders again, each beside its rival, until the two best have been: luck does not win."""
        again: set[str] = set()
        for _ in range(_RETIMINGS):
            leaders = [t for t in self.known.ranked if t not in self.baselines][:2]
            left = [t for t in leaders if t.id not in again]
            if self.known.ranked[0] in self.baselines or not left or self._interrupted.is_set():
                break
            again.add(left[0].id)
            self._again(left[0], tuple(t for t in leaders if t is not left[0]))
        return self._against_baselines(self._leader())

    def _leader(self) -> Trial:
        """The faster of the two best: side by side where they were, else by their scores."""
        first, *rest = self.known.ranked[:2]
        lead = _speedup(first, rest[0].id) / _speedup(rest[0], first.id) if rest else 1.0
        return first if lead >= 1 else rest[0]

    def _again(self, trial: Trial, against: tuple[Trial, ...]) -> None:
        self._watch("confirm", trial)
        assert trial.kernel is not None
        again = replace(trial, evaluation=loop.verdict(self.lab, trial.kernel, against))
        self.lab.lineage.evaluate(again, "confirmed")

    def _against_baselines(self, best: Trial) -> Trial:
        """The winner beside each baseline in turn, and back: what the claim rests on. Its score stays."""
        assert best.evaluation is not None
        assert best.kernel is not None
        rows = [row for row in best.evaluation.evidence.get("against", ()) if row["id"] not in self._baselines]
        for baseline in self.baselines:
            if best is not baseline:
                self._watch("confirm", best)
                evaluation = loop.verdict(self.lab, best.kernel, (baseline,))
                if evaluation.verdict not in (Verdict.ACCEPT, Verdict.HARNESS):  # right by luck until now
                    self.lab.lineage.evaluate(replace(best, evaluation=evaluation), "refuted")
                    return self._confirm()
                rows += evaluation.evidence.get("against", ())
                self._again(baseline, (best,))
        evidence = {**best.evaluation.evidence, "against": rows}
        claimed = replace(best, evaluation=replace(best.evaluation, evidence=evidence))
        if best not in self.baselines:
            self.lab.lineage.evaluate(claimed, "won")
        return claimed

    def _room(self) -> int:
        most = self.schedule.budgets["evaluations"]
        return 3 if most is None else max(int(most) - self.judged, 1)

    def _spent(self) -> str | None:
        full = [name for name, share in self.used().items() if share >= 1]
        return f"{full[0]}={self.schedule.budgets[full[0]]:g} used up" if full else None

    def _stop(self) -> bool:
        return self._interrupted.is_set() or (self._searching and self._spent() is not None)

    def _watch(self, what: str, trial: Trial | None) -> None:
        if what == "done" and trial and trial.origin is not Origin.SEED:
            self.judged += 1
        self._show(what, trial, self)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        def interrupt(number: int, frame: FrameType | None) -> None:
            if self._interrupted.is_set():
                raise KeyboardInterrupt
            self._interrupted.set()
            self._show("interrupt", None, self)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _speedup(trial: Trial, other: str) -> float:
    """How much faster `trial` was than `other`, side by side."""
    rows = trial.evaluation.evidence.get("against", ()) if trial.evaluation else ()
    return next((float(row["speedup"]) for row in rows if row["id"] == other), 1.0)


def _same_problem(population: Population, digest: str, run: str) -> None:
    for trial in population.trials:
        measured = trial.evaluation.evidence.get("problem", digest) if trial.evaluation else digest
        if measured != digest:
            raise ConfigError(
                f"run={run} was measured on another version of this problem or another set of cases; "
                f"name a new run with run=NAME"
            )


def _no_start(population: Population) -> str:
    rows = [f"{t.name or t.id}: {t.verdict} {t.evaluation.reason}" for t in population.trials if t.evaluation]
    return f"no seed is accepted by the judge, so there is nothing to start from ({'; '.join(rows) or 'no seeds'})"
