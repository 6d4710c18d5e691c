"""What runs, and for how long: stale leaders and seeds, rounds until a budget is spent, then the winner once more.

One process, one trial at a time. Ctrl-C once: the trial at hand is finished and kept, then the run ends as usual;
twice: it ends at once, and the next run takes up what was in flight.
"""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from ksflow import loop, renewal
from ksflow.errors import ConfigError, StageError
from ksflow.loop import Lab
from ksflow.records import Cost, Evaluation, Json, Origin, Population, Seed, Trial, Verdict

_BARREN_ROUNDS = 3
"""Rounds in a row without a trial after which a run gives up."""
_RETIMINGS = 4
"""Leaders that are judged again at most, before one is called the winner."""


class Schedule:
    """Budgets of one call. Whichever is reached first ends the search; none means no limit.

    evaluations: experiments written and judged. repairs: how often a failed kernel goes back to the writer.
    digest_every: trials between two digests. confirm: whether the winner is judged once more.
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
    """Seconds of the whole call: the search, and judging the leaders again."""
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
            if self.schedule.confirm:
                self._confirm()
        best = self.known.best
        if best is None:
            raise ConfigError(_no_start(self.known))
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
        lineage.expect(lab.key)
        lineage.population()
        self._find_baselines(seeds)
        self._renew(seeds)
        loop.attempt(lab, lineage.unfinished())
        lost = [t for t in self.known.trials if t.evaluation and t.evaluation.verdict is Verdict.HARNESS]
        loop.attempt(lab, lineage.again(lost))
        while not lineage.store.claim(lineage.branch_of("seeds")):
            time.sleep(0.1)
        known = {trial.kernel.digest for trial in lineage.everything() if trial.kernel}
        new = [seed for seed in seeds if seed.kernel.digest not in known]
        drafts = [Trial("", Origin.SEED, kernel=seed.kernel, name=seed.name) for seed in new]
        planted = lineage.plant(drafts)
        lineage.store.release(lineage.branch_of("seeds"))
        self._find_baselines(seeds)
        loop.attempt(lab, planted)
        while not lineage.population().ranked and lineage.busy() and not self._interrupted.is_set():
            time.sleep(0.2)  # another process is judging the seeds
        if not self.known.ranked:
            raise ConfigError(_no_start(self.known))

    def _find_baselines(self, seeds: tuple[Seed, ...]) -> None:
        digests = {seed.kernel.digest for seed in seeds if seed.baseline}
        everything = self.lab.lineage.everything()
        self._baselines = tuple(t.id for t in everything if t.kernel and t.kernel.digest in digests)

    def _renew(self, seeds: tuple[Seed, ...]) -> None:
        """Judge again what has become stale and matters; the rest stays stale."""
        stale, lineage = self.known.stale, self.lab.lineage
        due = {trial.id: trial for trial in renewal.due(self.known, {seed.kernel.digest for seed in seeds})}
        if due:
            changed = ", ".join(sorted({word for t in stale for word in t.stale.split(", ")}))
            self._watch(
                f"stale: {len(stale)} results are from before a change ({changed}); "
                f"{len(due)} of them, seeds and leaders, are judged again first",
                None,
            )
        judged = self.judged
        for trial in lineage.again(due.values()):
            was = due[trial.id].evaluation
            if was and not self._stop():
                loop.judge(self.lab, trial, {"renewed": renewal.before(was)})
        self.judged = judged  # no experiments of this call

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

    def _confirm(self) -> None:
        """Judge the winner again in fresh processes, beside the runner-up and each baseline: luck does not win."""
        again: set[str] = set()
        for _ in range(_RETIMINGS):
            best = self.known.best
            if best is None or best in self.baselines or best.id in again or self._interrupted.is_set():
                break
            again.add(best.id)
            rivals = (t for t in self.known.ranked if t is not best and t not in self.baselines)
            self._again(best, tuple(itertools.islice(rivals, 1)))

    def _beside(self, best: Trial, rivals: tuple[Trial, ...]) -> Evaluation:
        """Beside its rival, which gives the score, as every candidate's beside the incumbent; then the baselines."""
        assert best.kernel is not None
        now = loop.verdict(self.lab, best.kernel, rivals or self.baselines)
        if not (rivals and self.baselines and now.accepted):
            return now
        again = loop.verdict(self.lab, best.kernel, self.baselines)
        if not again.accepted and again.verdict is not Verdict.HARNESS:
            return again
        return replace(now, evidence={**now.evidence, "against": _newest(now, again)})

    def _again(self, best: Trial, rivals: tuple[Trial, ...]) -> None:
        """What is seen now replaces what was seen before, except where the machine did not let anything be seen."""
        self._watch("confirm", best)
        assert best.evaluation is not None
        now, before = self._beside(best, rivals), best.evaluation
        if now.accepted and now.unranked:  # the machine was busy for a moment
            now = self._beside(best, rivals)
        if "renewed" in before.evidence:
            now = replace(now, evidence={**now.evidence, "renewed": before.evidence["renewed"]})
        if now.verdict is Verdict.HARNESS:
            self._watch(f"not confirmed: {now.reason}", None)
            return
        if now.accepted and now.unranked:
            why, rows = now.unranked, [row for row in _newest(now, before) if row["id"] in self._baselines]
            label, now = "unconfirmed", replace(before, evidence={**before.evidence, "unconfirmed": why})
            now = replace(now, evidence={**now.evidence, "against": _joined(rows, before)})
        elif now.accepted:
            label, now = "confirmed", replace(now, evidence={**now.evidence, "against": _newest(now, before)})
        else:
            label = "refuted"
        self.lab.lineage.evaluate(replace(best, evaluation=now), label)

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


def _newest(now: Evaluation, before: Evaluation) -> list[Json]:
    """The rows of both, of two about the same trial the newer."""
    return _joined(now.evidence.get("against", []), before)


def _joined(rows: list[Json], before: Evaluation) -> list[Json]:
    return list({row["id"]: row for row in (*before.evidence.get("against", ()), *rows)}.values())


def _no_start(population: Population) -> str:
    rows = [f"{t.name or t.id}: {t.verdict} {t.evaluation.reason}" for t in population.trials if t.evaluation]
    return f"no seed is accepted by the judge, so there is nothing to start from ({'; '.join(rows) or 'no seeds'})"
