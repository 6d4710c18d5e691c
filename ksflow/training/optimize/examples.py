"""The questions a stage was asked in recorded rounds, each with what grades an answer to it."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from ksflow.errors import StageError
from ksflow.lineage.history import RoundSnapshot, RunHistory
from ksflow.lm.program import Inquiry
from ksflow.protocols import Writer
from ksflow.records import Material, Note, Origin, Verdict
from ksflow.training.optimize import metrics
from ksflow.training.optimize.held_out import PARTS, HeldOutSplit, split_rounds
from ksflow.training.optimize.metrics import Grader, Judge

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

    name: str
    """Of the stage: selector, designer, writer, verifier, digester."""
    stage: Any
    initial_notes: tuple[Note, ...] = ()
    """Notes that came with the target."""
    judge: Judge | None = None
    """Needed for writers, and to measure designs live."""
    write: Writer | None = None
    """Carries out new experiments; without it they are looked up in the record."""
    key: str = ""
    """The configuration key of the part whose prompt it is: `writer.llm` where the writer is a mix."""

    def questions(self, history: RunHistory, snapshot: RoundSnapshot) -> Iterator[Question]:
        """What the stage was asked in a round, but for what was left of the budget, which is not on record."""
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
    """All that the model is shown, as one text."""
    return "\n".join(inquiry.inputs.values())


def gather(
    source: ExampleSource, histories: Sequence[RunHistory], most: int, seed: int
) -> tuple[list[list[Case]], HeldOutSplit]:
    """The cases to learn from, to choose by, and to measure on: at most `most`, and no round is in two of the parts.

    ConfigError where there are too few rounds.
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
