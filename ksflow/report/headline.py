"""The one figure that a run claims: how many times as fast as the fastest baseline its winner is.

Every ratio comes from the population's scale, which rests on kernels that were timed in turns on one machine. Whatever
states the winner (terminal, commands, page, sweeps, suites, modules) asks `headline`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from ksflow.loop.schedule import Outcome
from ksflow.records import SELF_TIMED, Origin, Population, Seed, Speedup, Trial, base_of
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
    """What a run claims: its winner, over which baseline, and by how much. All figures are on one scale."""

    best: Trial
    known: Population
    over: Trial | None = None
    """The baseline that it beats by least, or the seed that it was made from where there is no baseline."""

    def __str__(self) -> str:
        """`winner 00048: x4.82 [4.71, 4.9] over NumPy`, or what there is to say in place of it. Models may read it."""
        if self.over is self.best:
            return f"winner {self.best.id}: {called(self.best)}, a baseline: nothing was faster for sure"
        ties = f"; a tie with {', '.join(trial.id for trial in self.known.tied)}" if self.known.tied else ""
        alone = f"{us(self.known.us(self.best) or 0.0)} µs, not timed beside a baseline"
        return f"winner {self.best.id}: {self.claim or alone}{ties}"

    def place(self, trial: Trial) -> str:
        """What a trial is beside its name: the winner, or what ties with it or could not be told from it."""
        if trial.id == self.best.id:
            return "winner"
        if all(trial.id != rival.id for rival in self.known.tied):
            return ""
        row = self.known.side_by_side(self.best.id, trial.id)
        return "a tie" if row is None or row.ranked else f"not told apart ({row.why})"

    @cached_property
    def row(self) -> Speedup | None:
        """How many times as fast as that one it is."""
        return self.known.speedup(self.best, self.over)

    @property
    def claim(self) -> str:
        """`x4.82 [4.71, 4.9] over NumPy`; empty where no comparison connects it to a baseline."""
        if self.over is None or self.row is None:
            return ""
        row, name = self.row, called(self.over)
        beside = self.known.side_by_side(self.best.id, self.over.id)
        if not row.ranked:
            return f"not ranked over {name}: {row}{f', {beside.why}' if beside and beside.why else ''}"
        clock = f", {SELF_TIMED}" if beside and SELF_TIMED in beside.clocks else ""
        precision = self.best.evaluation.evidence.precision if self.best.evaluation else ""
        return f"{row.over(name)}{f' in {precision.upper()}' if precision else ''}{clock}"

    @property
    def figures(self) -> str:
        """`47.1 µs, x4.82 [4.71, 4.9] over NumPy`."""
        return ", ".join(filter(None, (f"{us(self.known.us(self.best) or 0.0)} µs", self.claim)))

    @property
    def speedup(self) -> float | None:
        """Over the baseline; None where no comparison connects the two."""
        return self.row.ratio if self.row else None

    @property
    def start(self) -> str:
        """A second, smaller fact: how far it came from the seed that it was made from. Empty where that is the first
        one, or not known."""
        start = _start(self.best, self.known)
        row = self.known.speedup(self.best, start) if start is not self.over else None
        return f"x{row.ratio:.3g} over its start, {start.id} {start.name}".rstrip() if start and row else ""

    @property
    def held_out(self) -> str:
        """How the winner did on held-out shapes, which is for people; empty where it was not judged there."""
        held = self.best.held_out
        over = self.known.by_id.get(held.over.id) if held and held.over and not held.wrong else None
        return f"{held}{f' over {called(over)}' if over else ''}" if held else ""

    @property
    def unconfirmed(self) -> str:
        """That another kernel leads which was not confirmed, or that the winner itself was not; empty where it was."""
        leader = self.known.leader
        if leader and leader is not self.best and self.known.scale.ahead(leader.id, self.best.id):
            row = self.known.speedup(leader, self.best)
            return (
                f"{leader.id} leads, {row} over {self.best.id}, and is not confirmed: {self.best.id} stays the winner"
            )
        evaluation = self.best.evaluation
        if self.over is self.best or evaluation is None or evaluation.confirmed:
            return ""
        why = evaluation.evidence.unconfirmed or "it was not judged again at the end of a run"
        return f"{self.best.id} is not confirmed: {why}"

    def ratio(self, trial: Trial) -> str:
        """`x4.82 [4.71, 4.9] over NumPy` of any trial, over the same baseline; empty where that is not known."""
        if trial.id == self.best.id:
            return self.claim
        row = self.known.speedup(trial, self.over)
        return row.over(called(self.over)) if row and self.over and trial is not self.over else ""

    @property
    def steps(self) -> list[tuple[Trial, Trial | None, Speedup | None]]:
        """The winner's ancestors from the first, each with its base and how many times as fast as that it is."""
        chain = ancestors(self.best, self.known)[::-1]
        return [(t, base, self.known.speedup(t, base)) for t, base in zip(chain, [None, *chain[:-1]], strict=True)]


def headline(known: Population, baselines: Iterable[Trial], of: Trial | None = None) -> Headline | None:
    """What a run claims of its winner, or of another trial; None where no kernel was accepted.

    Of several baselines it is over the one that the winner beats by least, whether or not the two could be ranked.
    """
    best = of or known.best
    if best is None:
        return None
    others = tuple(baselines)
    if any(best.id == trial.id for trial in others):
        return Headline(best, known, best)
    rows = [(row.ratio, t) for t in others or filter(None, [_start(best, known)]) if (row := known.speedup(best, t))]
    return Headline(best, known, min(rows, key=lambda pair: pair[0], default=(0.0, None))[1])


def of_outcome(outcome: Outcome) -> Headline:
    """What a run that has ended claims; it has a winner."""
    claimed = headline(outcome.population, outcome.baselines)
    assert claimed is not None
    return claimed


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
