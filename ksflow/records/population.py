"""All trials of a run, and the best of them."""

import bisect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from ksflow.records.base import by_number
from ksflow.records.comparisons import Ratio, Speedup
from ksflow.records.notes import Document, Note, Status
from ksflow.records.plans import PlannedRound
from ksflow.records.scale import Scale, measured_ratio
from ksflow.records.trials import Rival, Selection, Step, Trial, base_of, first_attempt

_SIBLINGS, _LOOKED_AT = 8, 200
"""How many failures a writer is told, and among how many of the newest trials they are looked for."""


@dataclass(frozen=True)
class Population:
    """Every finished trial of a run with a current verdict, in the order of their ids."""

    trials: Sequence[Trial]
    stale: tuple[Trial, ...] = ()
    """Trials with an outdated verdict, which are known by their ids only."""
    pruned: frozenset[str] = frozenset()
    """Trials that a note replaces (`Note.closes`): prompts leave them out."""
    plans: tuple[PlannedRound, ...] = ()
    """Decisions of the newest rounds, in order."""
    approved: frozenset[str] = frozenset()  # trials that a person has approved

    @cached_property
    def by_id(self) -> Mapping[str, Trial]:
        return {trial.id: trial for trial in (*self.stale, *self.trials)}

    @cached_property
    def scale(self) -> Scale:
        """The speeds of the accepted kernels, on one scale."""
        return Scale.from_trials(self.trials)

    @cached_property
    def ranked(self) -> Sequence[Trial]:
        """The accepted trials without repeats, the fastest by the scale first.

        Those that no ranked measurement connects to a baseline come last.
        """
        accepted = (trial for trial in self.trials if _counts(trial))
        return tuple(sorted(accepted, key=lambda trial: self.scale.order(trial.id)))

    @cached_property
    def leader(self) -> Trial | None:
        """The incumbent, beside which candidates are judged: the last one of `best_so_far`.

        Once a kernel is known to be right on held-out shapes, kernels that are wrong there are excluded.
        """
        if len({*map(_wrong, self.held_out)}) > 1:
            return self._of(lambda trial: not _wrong(trial)).leader
        return self.best_so_far[-1] if self.trials else None

    @cached_property
    def best(self) -> Trial | None:
        """The winner, which is handed over: the leader, or a kernel that was confirmed or approved before.

        Only a confirmed kernel that was ranked ahead of it side by side, or such a baseline, replaces it.
        """
        best: Trial | None = None
        for trial in self.winners:
            if best is None or (_is_confirmed(trial) and self.scale.is_ahead(trial.id, best.id)):
                best = trial
        while best and (ahead := [name for name in self._ahead_of(best) if self._may_replace(name)]):
            best = self.by_id[ahead[0]]
        return best or self.leader

    @cached_property
    def winners(self) -> tuple[Trial, ...]:
        """Confirmed or approved trials that are not known to be wrong on held-out shapes."""
        return tuple(filter(self._has_won, self.trials))

    def _has_won(self, trial: Trial) -> bool:
        fit = _counts(trial) and not _wrong(trial) and trial.id not in self.disqualified_ids
        return fit and (_is_confirmed(trial) or trial.id in self.approved)

    def _ahead_of(self, trial: Trial) -> list[str]:
        """Return the trials of this population that were ranked ahead of it side by side, the fastest first."""
        return [name for name in self.scale.ahead_of(trial.id) if name in self.by_id]

    def _may_replace(self, name: str) -> bool:
        trial = self.by_id[name]
        return name not in self.disqualified_ids and (trial.baseline or (_is_confirmed(trial) and not _wrong(trial)))

    @cached_property
    def disqualified_ids(self) -> frozenset[str]:
        """Trials that failed beside an accepted kernel, and beside themselves: none of them leads."""
        return frozenset(name for trial in self.trials if _counts(trial) for name in _failed_beside(trial))

    @cached_property
    def baselines(self) -> tuple[Trial, ...]:
        """The accepted baselines, the fastest first."""
        return tuple(trial for trial in self.ranked if trial.baseline)

    @cached_property
    def held_out(self) -> tuple[Trial, ...]:
        """The trials judged on held-out shapes."""
        return tuple(trial for trial in self.trials if trial.held_out)

    @cached_property
    def ties(self) -> tuple[Trial, ...]:
        """Trials beside which the winner was timed in a confirmation without being ahead or behind, there or by all
        measurements together."""
        best = self.best
        versus = best.evaluation.evidence.against if best and best.evaluation else ()
        names = dict.fromkeys((*(row.id for row in versus), *(trial.id for trial in self.ranked)))
        rows = {name: row for name in names if best and (row := self.side_by_side(best.id, name))}
        apart = {id for id in rows if best and (r := self.scale.ratio(best.id, id)) and (r.ahead or r.slower)}
        tied = (id for id, row in rows.items() if row.moment and id not in apart and not (row.ahead or row.slower))
        return tuple(trial for id in tied if not _wrong(trial := self.by_id[id]))

    def side_by_side(self, trial: str, other: str) -> Ratio | None:
        """Return the latest ratio of two trials that were timed in turns, by their ids; None if they never were."""
        ours, theirs = (self.by_id.get(name) for name in (trial, other))
        if not (ours and theirs and ours.evaluation and theirs.evaluation):
            return None
        return measured_ratio(ours.evaluation, trial, theirs.evaluation, other)

    @cached_property
    def best_so_far(self) -> Sequence["Trial | None"]:
        """The leader after each trial: each was ranked ahead of the previous one by more than the margin.

        They are compared side by side, or if they never met by the measurements that connect them. All later
        measurements count: a kernel that was refuted later never led.
        """
        return tuple(self._leaders(None, self.trials))

    def _leaders(self, first: Trial | None, trials: Iterable[Trial]) -> Iterator["Trial | None"]:
        leader = first
        for trial in trials:
            fit = _counts(trial) and trial.id not in self.disqualified_ids
            if fit and (leader is None or self.scale.overtakes(trial.id, leader.id)):
                leader = trial
                now, fallen = by_number(trial.id), self.disqualified_ids
                while earlier := [n for n in self._ahead_of(leader) if by_number(n) < now and n not in fallen]:
                    leader = self.by_id[earlier[0]]
            yield leader

    def with_trial(self, trial: Trial) -> "Population":
        """Return this population with another trial, reusing what is known of it."""
        at = bisect.bisect(self.trials, by_number(trial.id), key=lambda other: by_number(other.id))
        later = (trial, *self.trials[at:])
        grown = replace(self, trials=(*self.trials[:at], *later))
        known: dict[str, Any] = {"by_id": {**self.by_id, trial.id: trial}}
        known["held_out"] = (*self.held_out, trial) if trial.held_out else self.held_out
        if _failed_beside(trial):
            grown.__dict__.update(known)
            return grown
        known["disqualified_ids"] = self.disqualified_ids
        if not self._has_won(trial):
            known["winners"] = self.winners
        grown.__dict__.update(known)
        if scale := self.scale.with_trial(trial):
            known = {"scale": scale, "ranked": self.ranked}
            if not trial.baseline:
                known["baselines"] = self.baselines
            if _counts(trial):
                index = bisect.bisect(self.ranked, scale.order(trial.id), key=lambda other: scale.order(other.id))
                known["ranked"] = (*self.ranked[:index], trial, *self.ranked[index:])
            grown.__dict__.update(known)
            leaders = grown._leaders(self.best_so_far[at - 1] if at else None, later)
            grown.__dict__["best_so_far"] = (*self.best_so_far[:at], *leaders)
        return grown

    def prune(self, notes: Iterable[Note]) -> "Population":
        """Return this population without the trials that notes replace as dead ends; the ranking is reused."""
        pruned = frozenset(id for note in notes if note.status is not Status.REFUTED for id in note.closes)
        return self if pruned == self.pruned else self._with(pruned=pruned)

    def restrict_to(self, language: str) -> "Population":
        """Return this population without the accepted kernels of other languages, if it has one of this language."""
        own = {trial.id for trial in self.ranked if trial.kernel and trial.kernel.language == language}
        return self._of(lambda trial: trial.score_us is None or trial.id in own or bool(trial.repeats)) if own else self

    def without_trials(self, ids: Container[str]) -> "Population":
        """Return this population without some of its trials, on the same scale."""
        return self._of(lambda trial: trial.id not in ids)

    def _of(self, kept: Callable[[Trial], bool]) -> "Population":
        part = replace(self, trials=tuple(filter(kept, self.trials)))
        part.__dict__["scale"] = self.scale
        return part

    def with_plans(self, plans: tuple[PlannedRound, ...]) -> "Population":
        """Return this population with the newest rounds' decisions; the ranking is reused."""
        return self._with(plans=plans)

    def _with(self, **fields: Any) -> "Population":
        made = replace(self, **fields)
        made.__dict__.update({name: known for name, known in self.__dict__.items() if name not in made.__dict__})
        return made

    def choose(self, base: str, reference: str, rationale: str, before: str = "") -> Selection:
        """Return a selection by ids, each with its one-step analysis. Raises KeyError for an unknown id.

        before: siblings and rivals are older than this trial.
        """
        first, second = self.by_id[base], self.by_id[reference]
        newest = self.trials[-_LOOKED_AT:]
        older = newest[: _count_older(newest, before)] if before else newest
        failed = (trial for trial in reversed(older) if _has_failed(trial) and base_of(trial, self.by_id) is first)
        siblings = tuple(islice(failed, _SIBLINGS))
        steps = self.step(first), self.step(second)
        return Selection(first, second, rationale, *steps, siblings, self.rivals(before))

    def selection_for(self, trial: Trial) -> Selection:
        """Return the selection for which a trial's experiment was designed. Raises KeyError for a missing trial."""
        first = first_attempt(trial, self.by_id) or trial
        planned = next((each for each in reversed(self.plans) if first.id in each.trials), None)
        why, before = (planned.rationale, min(planned.trials, key=by_number)) if planned else ("", first.id)
        avenue = planned.plan.avenue_of(first.experiment) if planned and first.experiment else ""
        return replace(self.choose(first.parents[0], first.parents[-1], why, before), avenue=avenue)

    def rivals(self, before: str = "") -> tuple[Rival, ...]:
        """Return the best so far, then the fastest on the scale if that is another one, then the other baselines.

        before: use only what was known before this trial, so that all experiments of a round get the same.
        """
        at = _count_older(self.trials, before) if before else 0
        best = self.best_so_far[at - 1] if at else self.leader
        fastest = islice(_older(self.ranked, before), 1)
        listed = {trial.id: trial for trial in (*fastest, *_older(self.baselines, before))}
        rows = [
            Rival(each, self.time_us(each), self.speedup(best, each))
            for each in listed.values()
            if best and each is not best
        ]
        return (*([Rival(best, self.time_us(best))] if best else []), *rows)

    def step(self, trial: Trial) -> Step:
        """Return how `trial` came about, compared with its experiment's base (`base_of`)."""
        parent = base_of(trial, self.by_id)
        report = trial.kernel.report if trial.kernel else ""
        scale, versus = self.scale, trial.evaluation.evidence.against if trial.evaluation else ()
        ratios = {row.id: ratio for row in versus if (ratio := scale.ratio(trial.id, row.id))}
        before = scale.times_us(parent.id) if parent else {}
        name = parent.id if parent else ""
        return Step(trial.experiment, report, name, before, scale.times_us(trial.id), scale.time_us(trial.id), ratios)

    def speedup(self, trial: Trial, other: Trial | None) -> Speedup | None:
        """Return the speed-up of one trial over another; None if no measurement connects them."""
        return self.scale.ratio(trial.id, other.id) if other else None

    def time_us(self, trial: Trial) -> float | None:
        """Return a trial's score on the scale; None if it was not accepted, or is stale."""
        return self.scale.time_us(trial.id)


def _count_older(trials: Sequence[Trial], before: str) -> int:
    return bisect.bisect_left(trials, by_number(before), key=lambda each: by_number(each.id))


def _older(trials: Iterable[Trial], before: str) -> Iterable[Trial]:
    return (trial for trial in trials if by_number(trial.id) < by_number(before)) if before else trials


def _wrong(trial: Trial) -> bool:
    return bool(trial.held_out and trial.held_out.wrong)


def _counts(trial: Trial) -> bool:
    return bool(trial.score_us) and not trial.repeats


def _failed_beside(trial: Trial) -> Mapping[str, str]:
    return trial.evaluation.evidence.failed_rivals if trial.evaluation else {}


def _is_confirmed(trial: Trial) -> bool:
    return bool(trial.evaluation and trial.evaluation.last_confirmation)


def _has_failed(trial: Trial) -> bool:
    evaluation = trial.evaluation
    return bool(trial.failure) if evaluation is None else not (evaluation.accepted or evaluation.verdict.inconclusive)


@dataclass(frozen=True)
class Material:
    """A digester's input."""

    documents: tuple[Document, ...] = ()
    population: Population = Population(())
    notes: tuple[Note, ...] = ()
