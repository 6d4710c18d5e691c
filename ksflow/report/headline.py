"""The one figure that a run claims: the winner beside the fastest baseline, as they were timed in turns on one machine.

Scores of different moments are no part of it: two kernels that were never timed side by side have no speed-up here.
Whatever states the winner or a ratio (terminal, commands, page, sweeps, suites, modules) asks `headline`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from ksflow.loop.schedule import Outcome
from ksflow.records import (
    SELF_TIMED,
    Origin,
    Population,
    Ratio,
    Seed,
    Speedup,
    Trial,
    base_of,
    measured,
    relative,
    speedup,
)
from ksflow.report.words import us

_SPELLED = {
    "torch": "PyTorch",
    "eager": "PyTorch",
    "compile": "torch.compile",
    "numpy": "NumPy",
    "reference": "the reference",
}


def called(baseline: Trial) -> str:
    """A baseline's name for a person: `00_numpy.py` is NumPy."""
    return _SPELLED.get(_stem(baseline), baseline.name or baseline.id)


def _stem(trial: Trial) -> str:
    return re.sub(r"^\d+_", "", PurePath(trial.name).stem)


def known_baselines(population: Population, seeds: Iterable[Seed] = ()) -> tuple[Trial, ...]:
    """The trials that are baselines, fastest first: those that are recorded as such, or are one of the problem's.

    A record from before that was kept tells by the names of seeds, where the problem's `seeds` are not at hand.
    """
    digests = {seed.kernel.digest for seed in seeds if seed.baseline}
    accepted = [trial for trial in population.ranked if trial.origin is Origin.SEED]
    baselines = [t for t in accepted if t.baseline or (t.kernel and t.kernel.digest in digests)]
    return tuple(baselines or ([t for t in accepted if _stem(t) in _SPELLED] if not digests else []))


@dataclass(frozen=True)
class Headline:
    """What a run claims: its winner, over which baseline, and by how much."""

    best: Trial
    known: Population
    over: Trial | None = None
    """The fastest of the baselines that it was timed beside, or the seed that it was made from where there is none."""
    row: Ratio | None = None
    """How many times as fast as that one it is."""

    def __str__(self) -> str:
        """`winner 00048: x4.82 [4.71, 4.9] over NumPy`, or what there is to say in place of it. Models may read it."""
        if self.over is self.best:
            return f"winner {self.best.id}: {called(self.best)}, a baseline: nothing was faster for sure"
        who = f"winner {self.best.id}: "
        if self.known.tied:
            *others, last = [self.best.id, *(trial.id for trial in self.known.tied)]
            who = f"{', '.join(others)} and {last}: {self.place(self.best)}; {self.best.id} is "
        return who + (self.claim or f"{us(self.best.score_us or 0.0)} µs, not timed beside a baseline")

    def place(self, trial: Trial) -> str:
        """What a trial is beside its name: the winner, or one of several that are alike or could not be ranked."""
        if trial.id not in (self.best.id, *(rival.id for rival in self.known.tied)):
            return ""
        rows = [row for rival in self.known.tied if (row := beside(self.best, rival))]
        doubts = [row.why for row in rows if not row.ranked]
        return f"not told apart ({doubts[0]})" if doubts else "a tie" if rows else "winner"

    @property
    def claim(self) -> str:
        """`x4.82 [4.71, 4.9] over NumPy`; empty where it was timed beside no baseline."""
        if self.over is None or self.row is None:
            return ""
        doubt = "" if self.row.ranked else f", not ranked: {self.row.why}"
        ratio = str(self.row).removesuffix(", not ranked")
        clock = f", {SELF_TIMED}" if SELF_TIMED in self.row.clocks else ""
        return f"{ratio} over {called(self.over)}{doubt or (', a tie' if self.row.tie else '')}{clock}"

    @property
    def speedup(self) -> float | None:
        """Over the baseline; None where it was timed beside none."""
        return self.row.speedup if self.row else None

    @property
    def start(self) -> str:
        """A second, smaller fact: how far it came from the seed that it was made from. Empty where that is the first
        one, or not known."""
        start = _start(self.best, self.known)
        row = self.ratios.get(start.id) if start and start is not self.over else None
        if not (start and row and self.speedup):
            return ""
        return f"x{self.speedup / row.ratio:.3g} over its start, {start.id} {start.name}".rstrip()

    @property
    def held_out(self) -> str:
        """How the winner did on held-out shapes, which is for people; empty where it was not judged there."""
        held = self.best.held_out
        over = self.known.by_id.get(held.over.id) if held and held.over and not held.wrong else None
        return f"{held}{f' over {called(over)}' if over else ''}" if held else ""

    @cached_property
    def ratios(self) -> dict[str, Speedup]:
        """How many times as fast as the same baseline each trial is that was timed in turns with it, at whatever
        remove (`relative`); empty where there is no baseline."""
        return relative(self.over, self.known.trials) if self.over else {}

    def ratio(self, trial: Trial) -> str:
        """`x4.82 [4.71, 4.9] over NumPy` of any trial, over the same baseline; empty where that is not known."""
        if trial.id == self.best.id:
            return self.claim
        row = self.ratios.get(trial.id)
        if row is None or self.over is None or trial is self.over:
            return ""
        return f"{row} over {called(self.over)}"

    def us(self, trial: Trial) -> float | None:
        """Its score as of the moment in which the winner was timed, where that is known."""
        score = trial.evaluation.score_us if trial.evaluation else None
        return score if not score or trial.stale else score * self.scale(trial)

    def times_us(self, trial: Trial) -> dict[str, float]:
        """Its time on each case as of that moment."""
        timings, scale = trial.evaluation.timings if trial.evaluation else (), self.scale(trial)
        return {timing.case: timing.us * scale for timing in timings}

    @property
    def steps(self) -> list[tuple[Trial, Trial | None, Speedup | None]]:
        """The winner's ancestors from the first, each with its base and how many times as fast as that it is."""
        chain = ancestors(self.best, self.known)[::-1]
        pairs = zip(chain, [None, *chain[:-1]], strict=True)
        return [(trial, base, speedup(trial, base) if base else None) for trial, base in pairs]

    def scale(self, trial: Trial) -> float:
        """What to multiply a trial's times by, so that they are as of the moment in which the winner was timed, and
        their ratios those that were measured. 1 where it was never timed in turns with the winner."""
        own, best = self.ratios.get(trial.id), self.speedup
        if trial.id == self.best.id or not (own and best and trial.score_us and self.best.score_us):
            return 1.0
        return self.best.score_us * best / own.ratio / trial.score_us


def headline(known: Population, baselines: Iterable[Trial]) -> Headline | None:
    """What a run claims; None where no kernel was accepted.

    Of several baselines it is over the one that the winner beats by least; those that could be ranked come first.
    """
    best = known.best
    if best is None:
        return None
    others = tuple(baselines)
    if any(best.id == trial.id for trial in others):
        return Headline(best, known, best)
    rows = [(row, trial) for trial in others or filter(None, [_start(best, known)]) if (row := beside(best, trial))]
    row, over = min(rows, key=lambda pair: (not pair[0].ranked, pair[0].speedup), default=(None, None))
    return Headline(best, known, over, row)


def of_outcome(outcome: Outcome) -> Headline:
    """What a run that has ended claims; it has a winner."""
    claimed = headline(outcome.population, outcome.baselines)
    assert claimed is not None
    return claimed


def beside(trial: Trial, other: Trial) -> Ratio | None:
    """How many times as fast as the other it is, by the newest comparison of the two; None where there is none."""
    if trial.evaluation is None or other.evaluation is None:
        return None
    return measured(trial.evaluation, trial.id, other.evaluation, other.id)


def ancestors(trial: Trial | None, known: Population) -> list[Trial]:
    """A trial, its base, that one's base, and so on."""
    chain: list[Trial] = []
    while trial is not None and trial not in chain:
        chain.append(trial)
        trial = base_of(trial, known.by_id)
    return chain


def _start(trial: Trial, known: Population) -> Trial | None:
    """The seed that a trial was made from, over however many others."""
    first = ancestors(trial, known)[-1]
    return first if first.origin is Origin.SEED and first.id != trial.id else None
