"""The headline of a run: the winner's speed-up over the fastest baseline.

Every ratio comes from the population's scale, which rests on kernels that were timed in turns on one machine. Terminal,
commands, page, sweeps, suites and modules all use `headline`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from ksflow.kernels.hardware import roofline
from ksflow.loop.schedule import RunOutcome
from ksflow.records import SELF_TIMED, Evidence, Origin, Population, Seed, Speedup, Trial, base_of
from ksflow.report.words import format_us, not_ranked

_SPELLED = {
    "torch": "PyTorch",
    "eager": "PyTorch",
    "compile": "torch.compile",
    "numpy": "NumPy",
    "reference": "the reference",
    "your_reference": "your reference",
}


def baseline_name(baseline: Trial) -> str:
    """Return a baseline's name for a person: `00_numpy.py` is NumPy."""
    return _SPELLED.get(_stem(baseline), baseline.name or baseline.id)


def _stem(trial: Trial) -> str:
    return re.sub(r"^\d+_", "", PurePath(trial.name).stem)


def known_baselines(population: Population, seeds: Iterable[Seed] = ()) -> tuple[Trial, ...]:
    """Return the baselines, fastest first: trials recorded as such, or that are one of the problem's.

    For old records without `seeds` the names of seed files tell.
    """
    digests = {seed.kernel.digest for seed in seeds if seed.baseline}
    accepted = [trial for trial in population.ranked if trial.origin is Origin.SEED]
    baselines = [t for t in accepted if t.baseline or (t.kernel and t.kernel.digest in digests)]
    return tuple(baselines or ([t for t in accepted if _stem(t) in _SPELLED] if not digests else []))


@dataclass(frozen=True)
class Headline:
    """The claim of a run: its winner, the baseline, and the speed-up. All figures are on one scale."""

    best: Trial
    known: Population
    over: Trial | None = None
    """The baseline that it beats by least, or without baselines the seed from which it was made."""
    baselines: int = 0  # how many there are

    def __str__(self) -> str:
        """Return `winner 00048: x4.82 [4.71, 4.9] over NumPy`, or a substitute. Models may read it."""
        if self.over is self.best:
            fastest = f", the fastest of {self.baselines} baselines" if self.baselines > 1 else ""
            text = f"no winner: none is ranked ahead of {baseline_name(self.best)}{fastest}"
            if trial := self.unproven:
                text += f"; {trial.id} reads {self.known.speedup(trial, self.best)} and could not be ranked"
            return text
        ties = f"; a tie with {', '.join(trial.id for trial in self.known.ties)}" if self.known.ties else ""
        alone = f"{format_us(self.known.time_us(self.best) or 0.0)} µs, not timed beside a baseline"
        fastest = f", the fastest of {self.baselines} baselines" if self.baselines > 1 and self.claim else ""
        return f"winner {self.best.id}: {self.claim or alone}{fastest}{ties}"

    @cached_property
    def unproven(self) -> Trial | None:
        """The fastest trial that reads ahead of the baseline that is the best kernel, and that could not be ranked."""
        if self.over is not self.best:
            return None
        rows = [
            (row.ratio, trial)
            for trial in self.known.trials
            if trial.evaluation and trial.evaluation.why_unranked and (row := self.known.speedup(trial, self.over))
        ]
        ratio, fastest = max(rows, key=lambda pair: pair[0], default=(0.0, None))
        return fastest if ratio > 1 else None

    def standing(self, trial: Trial) -> str:
        """Return a trial's remark: the winner, a tie with the winner, or not ranked ahead though it reads faster."""
        best = self.best
        if trial.id == best.id:
            return "winner" if self.over is not best else "the fastest baseline" if self.baselines > 1 else ""
        if any(trial.id == rival.id for rival in self.known.ties):
            row = self.known.side_by_side(best.id, trial.id)
            doubt = f"not told apart from {best.id} in the confirmation ({row.why})" if row and not row.ranked else ""
            return doubt or f"a tie with {best.id}"
        ratio = self.known.speedup(trial, best)
        unranked = trial.evaluation and trial.evaluation.why_unranked  # tables give that reason
        return f"not ranked ahead of {best.id}" if ratio and ratio.ratio > 1 and not unranked else ""

    def why_unranked(self, trial: Trial) -> str:
        """Return why a trial is not ranked; "" if it is, or if a confirmation has shown a tie with the winner."""
        tied = any(trial.id == rival.id for rival in self.known.ties)
        row = self.known.side_by_side(self.best.id, trial.id) if tied else None
        return "" if row and row.ranked else not_ranked(trial.evaluation)

    @property
    def roofline(self) -> str:
        """Return `00019 is at 84 % of the roofline` for the winner; "" if its roofline is unknown."""
        evidence = self.best.evaluation.evidence if self.best.evaluation else Evidence()
        share = 100 * (roofline.share(evidence.roofline, evidence.weights) or 0.0)
        return f"{self.best.id} is at {share:.{0 if share >= 1 else 2}f} % of the roofline" if share else ""

    @cached_property
    def row(self) -> Speedup | None:
        """The winner's speed-up over the baseline."""
        return self.known.speedup(self.best, self.over)

    @property
    def claim(self) -> str:
        """`x4.82 [4.71, 4.9] over NumPy`; "" if no comparison connects it to a baseline."""
        if self.over is None or self.row is None or self.over is self.best:
            return ""
        row, name = self.row, baseline_name(self.over)
        versus = self.known.side_by_side(self.best.id, self.over.id)
        if not row.ranked:
            return f"not ranked over {name}: {row}{f', {versus.why}' if versus and versus.why else ''}"
        clock = f", {SELF_TIMED}" if versus and SELF_TIMED in versus.clocks else ""
        evidence = self.best.evaluation.evidence if self.best.evaluation else Evidence()
        precision = f" in {evidence.precision.upper()}" if evidence.precision else ""
        weighted = ", cases weighted" if evidence.weights else ""
        return f"{row.describe(name)}{precision}{evidence.cores_each}{weighted}{clock}"

    @property
    def figures(self) -> str:
        """`47.1 µs, x4.82 [4.71, 4.9] over NumPy`."""
        return ", ".join(filter(None, (f"{format_us(self.known.time_us(self.best) or 0.0)} µs", self.claim)))

    @property
    def speedup(self) -> float | None:
        """The speed-up over the baseline; None if no comparison connects the two."""
        return self.row.ratio if self.row else None

    @property
    def start(self) -> str:
        """The winner's speed-up over the seed from which it was made, with its interval and whether the two were timed
        side by side; "" if that seed is the baseline, or unknown."""
        start = _start(self.best, self.known)
        row = self.known.speedup(self.best, start) if start is not self.over else None
        if not start or not row:
            return ""
        paired = self.known.side_by_side(self.best.id, start.id)
        doubts = ["not ranked"] * (not row.ranked) + ["not timed side by side"] * (not paired)
        text = f"{row} over its start, {start.id} {start.name}".rstrip()
        return f"{text} ({', '.join(doubts)})" if doubts else text

    @property
    def held_out(self) -> str:
        """The winner's results on held-out shapes, for people; "" if not judged there."""
        held = self.best.held_out
        over = self.known.by_id.get(held.over.id) if held and held.over and not held.wrong else None
        return f"{held}{f' over {baseline_name(over)}' if over else ''}" if held else ""

    @property
    def why_unconfirmed(self) -> str:
        """A line that the leader, or the winner itself, was not confirmed; "" if it was."""
        leader = self.known.leader
        if leader and leader is not self.best and self.known.scale.is_ahead(leader.id, self.best.id):
            row = self.known.speedup(leader, self.best)
            return (
                f"{leader.id} leads, {row} over {self.best.id}, and is not confirmed: {self.best.id} stays the winner"
            )
        evaluation = self.best.evaluation
        if self.over is self.best or evaluation is None or evaluation.last_confirmation:
            return ""
        why = evaluation.evidence.unconfirmed or "it was not judged again at the end of a run"
        return f"{self.best.id} is not confirmed: {why}"

    def ratio(self, trial: Trial) -> str:
        """Return `x4.82 [4.71, 4.9] over NumPy` for any trial, over the same baseline; "" if unknown."""
        if trial.id == self.best.id:
            return self.claim
        row = self.known.speedup(trial, self.over)
        return row.describe(baseline_name(self.over)) if row and self.over and trial is not self.over else ""

    @property
    def steps(self) -> list[tuple[Trial, Trial | None, Speedup | None]]:
        """The winner's ancestors from the first, each with its base and its speed-up over the base."""
        chain = ancestors(self.best, self.known)[::-1]
        return [(t, base, self.known.speedup(t, base)) for t, base in zip(chain, [None, *chain[:-1]], strict=True)]


def headline(population: Population, baselines: Iterable[Trial], of: Trial | None = None) -> Headline | None:
    """Return the claim for the winner, or for another trial; None if no kernel was accepted.

    Of several baselines it is over the one that the winner beats by least, ranked or not.
    """
    best = of or population.best
    if best is None:
        return None
    others = tuple(baselines)
    if any(best.id == trial.id for trial in others):
        return Headline(best, population, best, len(others))
    rows = [
        (row.ratio, t)
        for t in others or filter(None, [_start(best, population)])
        if (row := population.speedup(best, t))
    ]
    over = min(rows, key=lambda pair: pair[0], default=(0.0, None))[1]
    return Headline(best, population, over, len(others))


def of_outcome(outcome: RunOutcome) -> Headline:
    """Return the claim of a run that has ended with a winner."""
    claimed = headline(outcome.population, outcome.baselines)
    assert claimed is not None
    return claimed


def ancestors(trial: Trial | None, population: Population) -> list[Trial]:
    """Return a trial, its base, that one's base, and so on."""
    chain: list[Trial] = []
    while trial is not None and trial not in chain:
        chain.append(trial)
        trial = base_of(trial, population.by_id)
    return chain


def _start(trial: Trial, population: Population) -> Trial | None:
    first = ancestors(trial, population)[-1]
    return first if first.origin is Origin.SEED and first.id != trial.id else None
