"""All that was tried, and who is the best of it."""

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Any

from ksflow.records.evidence import Claim, Ratio
from ksflow.records.notes import Document, Note, Status
from ksflow.records.ratios import BETTER_BY, base_of, first_attempt, measured
from ksflow.records.trials import PlannedRound, Selection, Step, Trial

_SIBLINGS, _LOOKED_AT = 8, 200
"""So many failures are told to a writer, of so many of the newest trials."""
_NEAR = 8
"""Kernels of the best scores, whose own records are asked whether they are faster than the incumbent."""


@dataclass(frozen=True)
class Population:
    """Every finished trial of a run whose verdict holds, in the order of their ids."""

    trials: Sequence[Trial]
    stale: tuple[Trial, ...] = ()
    """Trials whose verdict is from before something changed: known by their ids, and for nothing else."""
    pruned: frozenset[str] = frozenset()
    """Trials that a note stands for (`Note.closes`): prompts leave them out."""
    plans: tuple[PlannedRound, ...] = ()
    """What the newest rounds decided, in their order."""

    @cached_property
    def by_id(self) -> Mapping[str, Trial]:
        return {trial.id: trial for trial in (*self.stale, *self.trials)}

    @cached_property
    def ranked(self) -> Sequence[Trial]:
        """The accepted trials by score, repeats left out; of equals the earlier."""
        accepted = (trial for trial in self.trials if trial.score_us is not None and not trial.repeats)
        return tuple(sorted(accepted, key=_rank))

    @cached_property
    def best(self) -> Trial | None:
        """The incumbent: it beat the one before it by more than noise, as the rest did not beat it.

        Where the newest comparison of it with another trial, whichever of the two was judged then, shows that one to be
        faster for sure, that one is the best. It may have been judged long before, beside others. Once a kernel is
        known to be right on held-out shapes, those that are wrong there are none of them.
        """
        if len({*map(_wrong, self.held_out)}) > 1:
            return replace(self, trials=tuple(trial for trial in self.trials if not _wrong(trial))).best
        found = self.best_so_far[-1] if self.trials else None
        seen: set[str] = set()
        while found and found.id not in seen:
            seen.add(found.id)
            faster = [one for one in self._near(found) if (last := duel(one, found)).wins and last.row]
            found = min(faster, key=_rank, default=found)
        return found

    @cached_property
    def held_out(self) -> tuple[Trial, ...]:
        """Those that were judged on held-out shapes."""
        return tuple(trial for trial in self.trials if trial.held_out)

    @cached_property
    def tied(self) -> tuple[Trial, ...]:
        """Those that the best one was beside in a confirmation and is not ahead of."""
        best = self.best
        rows = {one.id: duel(one, best).row for one in self._near(best)} if best else {}
        tied = (self.by_id[id] for id, row in rows.items() if row and row.moment and (row.tie or not row.ranked))
        return tuple(trial for trial in tied if not _wrong(trial))

    def _near(self, incumbent: Trial) -> list[Trial]:
        """Those that it was timed beside, and those of the best scores, which may have been timed beside it."""
        rows = incumbent.evaluation.evidence.against if incumbent.evaluation else ()
        beside = (self.by_id.get(row.id) for row in rows)
        near = {trial.id: trial for trial in (*beside, *self.ranked[:_NEAR]) if trial and trial.id != incumbent.id}
        return [trial for trial in near.values() if trial.score_us and not trial.repeats]

    @cached_property
    def best_so_far(self) -> Sequence["Trial | None"]:
        """The best one after each trial."""
        return _incumbents(None, self.trials)

    def plus(self, trial: Trial) -> "Population":
        """This population and another trial: what is known of it is copied, and nothing is ranked again."""
        at = bisect.bisect(self.trials, trial.id, key=lambda other: other.id)
        later = (trial, *self.trials[at:])
        grown = replace(self, trials=(*self.trials[:at], *later))
        ranked = self.ranked
        if trial.score_us is not None and not trial.repeats:
            place = bisect.bisect(ranked, _rank(trial), key=_rank)
            ranked = (*ranked[:place], trial, *ranked[place:])
        incumbents = _incumbents(self.best_so_far[at - 1] if at else None, later)
        known = {"by_id": {**self.by_id, trial.id: trial}, "ranked": ranked}
        known |= {"held_out": (*self.held_out, trial) if trial.held_out else self.held_out}
        grown.__dict__.update(known, best_so_far=(*self.best_so_far[:at], *incumbents))
        return grown

    def pruned_by(self, notes: Iterable[Note]) -> "Population":
        """This population, where the notes stand for dead ends; nothing is ranked again."""
        pruned = frozenset(id for note in notes if note.status is not Status.REFUTED for id in note.closes)
        return self if pruned == self.pruned else self._with(pruned=pruned)

    def keeping_to(self, language: str) -> "Population":
        """This population without the accepted kernels of other languages, if there is one of this language."""
        own = [trial.id for trial in self.ranked if trial.kernel and trial.kernel.language == language]
        kept = tuple(t for t in self.trials if t.score_us is None or t.id in own or t.repeats)
        return replace(self, trials=kept) if own else self

    def planned(self, plans: tuple[PlannedRound, ...]) -> "Population":
        """This population, with what its newest rounds decided; nothing is ranked again."""
        return self._with(plans=plans)

    def _with(self, **fields: Any) -> "Population":
        made = replace(self, **fields)
        known = {"by_id", "ranked", "best_so_far", "held_out"} & self.__dict__.keys()
        made.__dict__.update({name: self.__dict__[name] for name in known})
        return made

    def choose(self, base: str, reference: str, rationale: str, before: str = "") -> Selection:
        """A selection by ids, each with its one-step analysis. KeyError names an unknown id.

        before: its siblings are older than this trial.
        """
        first, second = self.by_id[base], self.by_id[reference]
        newest = islice(reversed(self.trials), _LOOKED_AT)
        older = (trial for trial in newest if not before or trial.id < before)
        failed = (trial for trial in older if _has_failed(trial) and base_of(trial, self.by_id) is first)
        siblings = tuple(islice(failed, _SIBLINGS))
        return Selection(first, second, rationale, self.step(first), self.step(second), siblings)

    def chosen_for(self, trial: Trial) -> Selection:
        """The selection that its experiment was designed for, as its round made it. KeyError names what is gone."""
        first = first_attempt(trial, self.by_id) or trial
        planned = next((each for each in reversed(self.plans) if first.id in each.trials), None)
        why, before = (planned.rationale, min(planned.trials)) if planned else ("", first.id)
        return self.choose(first.parents[0], first.parents[-1], why, before)

    def step(self, trial: Trial) -> Step:
        """How `trial` came about, against the kernel that its experiment was designed for (`base_of`)."""
        parent = base_of(trial, self.by_id)
        report = trial.kernel.report if trial.kernel else ""
        return Step(trial.experiment, report, parent.id if parent else "", _times(parent), _times(trial))


def _wrong(trial: Trial) -> bool:
    """Whether it is known to be wrong on a held-out shape."""
    return bool(trial.held_out and trial.held_out.wrong)


def _incumbents(first: Trial | None, trials: Iterable[Trial]) -> tuple[Trial | None, ...]:
    """The incumbent after each of the trials, where `first` was it before them."""

    def better(incumbent: Trial | None, trial: Trial | None) -> Trial | None:
        if not trial or not trial.score_us or trial.repeats or (incumbent and not duel(trial, incumbent).wins):
            return incumbent
        return trial

    return tuple(accumulate([first, *trials], better))[1:]


@dataclass(frozen=True)
class Duel:
    """What two verdicts say of a kernel beside another: what was seen last decides."""

    wins: bool
    """Whether it is the better one for sure."""
    row: Ratio | None = None
    """How many times as fast as the other it is; None where they were never timed side by side."""


def duel(trial: Trial, incumbent: Trial) -> Duel:
    """By the newest comparison of the two (`measured`), else by the scores alone. Both were accepted. An incumbent that
    failed in that comparison through no fault of the other has lost."""
    assert trial.evaluation is not None
    assert incumbent.evaluation is not None
    row = measured(trial.evaluation, trial.id, incumbent.evaluation, incumbent.id)
    if row is None and incumbent.id in trial.evaluation.evidence.failed_rivals:
        return Duel(True)
    if row is None:
        return Duel((trial.evaluation.score_us or math.inf) * BETTER_BY <= (incumbent.evaluation.score_us or math.inf))
    return Duel(row.ranked and (row.faster if isinstance(row, Claim) else row.low > 1), row)


def _has_failed(trial: Trial) -> bool:
    evaluation = trial.evaluation
    return bool(trial.failure) if evaluation is None else not (evaluation.accepted or evaluation.verdict.blameless)


def _rank(trial: Trial) -> tuple[float, str]:
    return (trial.score_us or math.inf, trial.id)


def _times(trial: Trial | None) -> dict[str, float]:
    evaluation = trial.evaluation if trial and not trial.stale else None
    return {timing.case: timing.us for timing in evaluation.timings} if evaluation else {}


@dataclass(frozen=True)
class Material:
    """What a digester works from."""

    documents: tuple[Document, ...] = ()
    population: Population = Population(())
    notes: tuple[Note, ...] = ()
