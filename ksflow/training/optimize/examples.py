"""The questions a stage was asked in recorded rounds, each with what grades an answer, in three parts of a split.

A round's outcomes are shown to whoever learns from earlier ones: a selector is graded by the best kernel that was ever
made from its base, a designer by what the nearest experiment on record did. Rounds of one run, drawn at random, would
so tell the outcomes of those that are held out. Therefore whole problems are held out where there are several, else
whole runs, else the rounds that came last; and in each run a round is graded by what was known before the first round
of a later part began (`HeldOutSplit.visible_history`).
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from ksflow.errors import ConfigError, StageError, pluralize
from ksflow.lineage.rounds import RoundSnapshot, RunHistory
from ksflow.lm.program import Inquiry
from ksflow.protocols import Writer
from ksflow.records import Material, Note, Origin, Verdict, name_without_precision
from ksflow.training.optimize import metrics
from ksflow.training.optimize.metrics import Grader, Judge

PARTS = {"train": 0.4, "validation": 0.3, "held out": 0.3}
"""Part -> its share of the rounds, in the order in which the parts may know of each other."""
_LEAST = 2  # rounds that each part needs
_ENOUGH, _TOO_MUCH = 2 / 3, 2.0
"""How many times its share a part may be, at least and at most, where whole problems or runs go into it."""
_UNITS: dict[str, Callable[[RoundSnapshot], str]] = {
    "problem": lambda snapshot: name_without_precision(snapshot.problem),
    "run": lambda snapshot: f"{snapshot.problem}/{snapshot.run}",
}
Question = tuple[Inquiry[Any], Callable[[RunHistory], Grader]]
"""What the stage was asked, and what grades an answer to it: given the run as far as a grade may look."""
_Make = Callable[[Inquiry[Any], RunHistory], Grader]


class Case(NamedTuple):
    """A question with its grader, and the name of the round that it is from."""

    inquiry: Inquiry[Any]
    grade: Grader
    round: str = ""


@dataclass(frozen=True)
class ExampleSource:
    """What examples are made from."""

    name: str  # of the stage: selector, designer, writer, verifier, digester
    stage: Any
    initial_notes: tuple[Note, ...] = ()  # notes that came with the target
    judge: Judge | None = None  # needed for writers, and to measure designs live
    write: Writer | None = None  # carries out new experiments; without it they are looked up in the record
    key: str = ""  # the configuration key of the part whose prompt it is: `writer.llm` where the writer is a mix

    def questions(self, history: RunHistory, snapshot: RoundSnapshot) -> Iterator[Question]:
        """Yield what the stage was asked in a round, without the rest of the budget, which is not on record."""
        for asked, make in self._asked(history, snapshot):
            with suppress(StageError):
                if inquiry := self.stage.question(history.problem, *asked):
                    yield inquiry, partial(make, inquiry)

    def _asked(self, history: RunHistory, snapshot: RoundSnapshot) -> Iterator[tuple[tuple[Any, ...], _Make]]:
        population, selection, notes = snapshot.population, snapshot.selection, self.initial_notes + snapshot.notes
        if self.name == "digester" and snapshot.learnt:
            yield (Material((), population, snapshot.before),), lambda inquiry, run: metrics.digester(shown(inquiry))
        elif selection and self.name == "selector":
            yield (population,), lambda inquiry, run: metrics.selector(run, snapshot)
        elif selection and self.name == "designer":
            yield (population, selection, notes), lambda inquiry, run: metrics.designer(snapshot, self._attempt(run))
        elif selection and self.name == "verifier":
            for trial in (history.final.by_id.get(trial.id, trial) for trial in snapshot.trials):
                if trial.kernel and trial.evaluation and trial.evaluation.verdict is not Verdict.HARNESS:
                    grader = metrics.verifier(trial.evaluation)
                    yield (selection, trial.experiment, notes, trial.kernel), partial(_always, grader)
        elif selection and self.name == "writer" and self.judge:
            grader = metrics.writer(history.problem, selection, self.judge)
            for trial in snapshot.trials:
                experiment = trial.experiment  # a change of tunables alone is written by rule
                if experiment and not experiment.changes and trial.origin is Origin.EXPERIMENT:
                    avenue = snapshot.plan.avenue_of(experiment) if snapshot.plan else ""
                    yield (replace(selection, avenue=avenue), experiment, notes), partial(_always, grader)

    def _attempt(self, history: RunHistory) -> metrics.Attempt:
        if self.judge and self.write:
            return metrics.live_attempt(history.problem, self.judge, self.write)
        return metrics.recorded_attempt(history)


def _always(grader: Grader, inquiry: Inquiry[Any], history: RunHistory) -> Grader:
    return grader


def shown(inquiry: Inquiry[Any]) -> str:
    """Return all inputs of a question as one text."""
    return "\n".join(inquiry.inputs.values())


@dataclass(frozen=True)
class HeldOutSplit:
    """The division of rounds into the parts."""

    parts: Mapping[str, frozenset[str]]  # part -> the names of its rounds
    how: str  # for the card: what divides them

    @cached_property
    def _rank(self) -> Mapping[str, int]:
        return {name: rank for rank, part in enumerate(PARTS) for name in self.parts[part]}

    def visible_history(self, history: RunHistory, snapshot: RoundSnapshot) -> RunHistory:
        """Return the run as far as a grade of this round may look: until the first round of a later part began."""
        rank = self._rank.get(snapshot.name, 0)
        first = next((other for other in history.rounds if self._rank.get(other.name, rank) > rank), None)
        return replace(history, final=first.population) if first else history


def split_rounds(snapshots: Iterable[RoundSnapshot], seed: int, what: str) -> HeldOutSplit:
    """Divide rounds into the parts; `seed` draws the held-out problems. Raises ConfigError for too few rounds."""
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.began)
    least, total = _LEAST * len(PARTS), len(ordered)
    if total < least:
        raise ConfigError(
            f"{pluralize(total, 'round')} to learn from for {what}, and at least {least} are needed: "
            "search on with `ksflow run`, or name more with optimize.runs= or optimize.problems="
        )
    rest, held, last = _set_apart(ordered, PARTS["held out"] * total, 2 * _LEAST, seed)
    train, checked, middle = _set_apart(rest, PARTS["validation"] * total, _LEAST, seed)
    names = [frozenset(snapshot.name for snapshot in part) for part in (train, checked, held)]
    return HeldOutSplit(dict(zip(PARTS, names, strict=True)), f"held out {last}; validation {middle}")


def _set_apart(
    snapshots: Sequence[RoundSnapshot], wanted: float, left: int, seed: int
) -> tuple[list[RoundSnapshot], list[RoundSnapshot], str]:
    """Return the rest, at least `left` rounds, then about `wanted` rounds, and in words how they are divided."""
    for unit, of in _UNITS.items():
        names = list(dict.fromkeys(map(of, snapshots)))  # in the order in which they began
        if unit == "problem":
            random.Random(f"{seed} {unit}").shuffle(names)
        sizes, chosen, count = Counter(map(of, snapshots)), set[str](), 0
        while count < max(_LEAST, _ENOUGH * wanted):
            chosen.add(names[-1 - len(chosen)])
            count = sum(sizes[name] for name in chosen)
        if count <= _TOO_MUCH * wanted and len(snapshots) - count >= left:
            rest, apart = ([each for each in snapshots if (of(each) in chosen) is wanted] for wanted in (False, True))
            return rest, apart, f"by {unit} ({', '.join(sorted(chosen))})"
    count = min(max(_LEAST, round(wanted)), len(snapshots) - left)
    rest, apart = list(snapshots[:-count]), list(snapshots[-count:])
    return rest, apart, f"by time (from round {apart[0].name} on; what came later is out of reach of what was earlier)"


def gather(
    source: ExampleSource, histories: Sequence[RunHistory], most: int, seed: int
) -> tuple[list[list[Case]], HeldOutSplit]:
    """Return the cases to learn from, to choose by and to measure on, about `most` in all, and the split of the rounds.
    No round is in two parts. Raises ConfigError for too few rounds.
    """
    asked: dict[str, tuple[RunHistory, RoundSnapshot, Question]] = {}
    for history in histories:
        for snapshot in history.rounds:
            for question in source.questions(history, snapshot):
                asked.setdefault(shown(question[0]), (history, snapshot, question))
    split = split_rounds({snapshot.name: snapshot for _, snapshot, _ in asked.values()}.values(), seed, source.name)
    parts = []
    for name, share in PARTS.items():
        mine = [entry for entry in asked.values() if entry[1].name in split.parts[name]]
        random.Random(f"{seed} {name}").shuffle(mine)
        parts.append(
            [
                Case(inquiry, make(split.visible_history(history, snapshot)), snapshot.name)
                for history, snapshot, (inquiry, make) in mine[: max(2, round(most * share))]
            ]
        )
    return parts, split
