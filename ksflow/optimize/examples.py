"""The questions a stage was asked in recorded rounds, each with what grades an answer to it."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

from ksflow.lineage.history import RoundSnapshot, RunHistory
from ksflow.optimize import metrics
from ksflow.optimize.held_out import PARTS, HeldOutSplit, split_rounds
from ksflow.optimize.metrics import Grader, Judge
from ksflow.protocols import Writer
from ksflow.records import Material, Note, Origin, Verdict

Question = tuple[Callable[[], object], Callable[[RunHistory, str], Grader]]
"""A call of the stage as the round made it, and what grades an answer to it: given the run as far as a grade may look,
and all that the model is shown.
"""


@dataclass(frozen=True)
class Source:
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
        ask, notes, selection = self.stage.question, self.initial_notes + snapshot.notes, snapshot.selection
        problem = history.problem
        if self.name == "digester":
            if snapshot.learnt:
                material = Material((), snapshot.known, snapshot.before)
                yield partial(ask, problem, material), lambda history, shown: metrics.digester(shown)
        elif selection and self.name == "selector":
            yield partial(ask, problem, snapshot.known), lambda history, shown: metrics.selector(history, snapshot)
        elif selection and self.name == "designer":
            yield (
                partial(ask, problem, snapshot.known, selection, notes),
                lambda history, shown: metrics.designer(snapshot, self._attempt(history)),
            )
        elif selection and self.name == "verifier":
            for trial in (history.final.by_id.get(trial.id, trial) for trial in snapshot.trials):
                if trial.kernel and trial.evaluation and trial.evaluation.verdict is not Verdict.HARNESS:
                    question = partial(ask, problem, selection, trial.experiment, notes, trial.kernel)
                    by_verdict = metrics.verifier(trial.evaluation)
                    yield question, lambda history, shown, grader=by_verdict: grader  # type: ignore[misc]
        elif selection:
            assert self.judge is not None
            grader = metrics.writer(problem, selection, self.judge)
            for trial in snapshot.trials:
                # a change of tunables alone is written by rule
                if (
                    trial.experiment and not trial.experiment.changes and trial.origin is Origin.EXPERIMENT
                ):  # by a model
                    avenue = snapshot.plan.avenue_of(trial.experiment) if snapshot.plan else ""
                    chosen = replace(selection, avenue=avenue)
                    yield partial(ask, problem, chosen, trial.experiment, notes), lambda history, shown: grader

    def _attempt(self, history: RunHistory) -> metrics.Attempt:
        if self.judge and self.write:
            return metrics.live(history.problem, self.judge, self.write)
        return metrics.recorded(history)


class Parts(NamedTuple):
    """Numbers of questions; no round is in two of them."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]
    rounds: tuple[int, ...]
    """How many rounds each part is from."""
    how: str = ""
    """What divides them, in words."""
    held_out_rounds: tuple[str, ...] = ()
    """The round of each question that is held out."""


def gather(source: Source, school: Any, histories: Sequence[RunHistory], most: int, seed: int) -> Parts:
    """Have the school hear every question, and split them by rounds. ConfigError where there are too few."""
    cases: dict[str, list[int]] = {}
    asked: dict[str, RoundSnapshot] = {}
    seen: set[str] = set()
    splits: list[HeldOutSplit] = []  # the one there will be: until then nothing is graded

    def deferred(
        history: RunHistory, snapshot: RoundSnapshot, make: Callable[[RunHistory, str], Grader], shown: str
    ) -> Grader:
        grader = cache(lambda: make(splits[0].visible(history, snapshot), shown))
        return lambda answer, refused: grader()(answer, refused)

    for history in histories:
        for snapshot in history.rounds:
            for call, make in source.questions(history, snapshot):
                case = school.hear(call, partial(deferred, history, snapshot, make))
                if case is not None and (text := school.shown(case)) not in seen:
                    seen.add(text)
                    cases.setdefault(snapshot.name, []).append(case)
                    asked[snapshot.name] = snapshot
    split = split_rounds(asked.values(), seed, source.name)
    splits.append(split)
    return _parts(split, cases, most, seed)


def _parts(split: HeldOutSplit, cases: Mapping[str, Sequence[int]], most: int, seed: int) -> Parts:
    parts = []
    for name, share in PARTS.items():
        mine = sorted(case for snapshot in split.parts[name] for case in cases[snapshot])
        random.Random(f"{seed} {name}").shuffle(mine)
        parts.append(tuple(mine[: max(2, round(most * share))]))
    train, validation, held_out = parts
    sizes = tuple(len(split.parts[name]) for name in PARTS)
    round_of = {case: name for name, mine in cases.items() for case in mine}
    return Parts(train, validation, held_out, sizes, split.how, tuple(round_of[case] for case in held_out))
