"""The questions a stage was asked in recorded rounds, each with what grades an answer to it."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from ksflow.optimize import metrics
from ksflow.optimize.division import PARTS, Division, divide
from ksflow.optimize.history import History, Moment
from ksflow.optimize.metrics import Grader, Judge
from ksflow.protocols import Writer
from ksflow.records import Material, Note, Origin

Asked = tuple[Callable[[], object], Callable[[History], Callable[[str], Grader]]]
"""A call of the stage as the round made it, and what grades an answer to it: given the run as far as a grade may look,
and all that the model is shown.
"""


@dataclass(frozen=True)
class Source:
    """What examples are made from."""

    name: str
    """Of the stage: selector, designer, writer, digester."""
    stage: Any
    initial_notes: tuple[Note, ...] = ()
    """Notes that came with the target."""
    judge: Judge | None = None
    """Needed for writers, and to measure designs live."""
    write: Writer | None = None
    """Carries out new experiments; without it they are looked up in the record."""

    def questions(self, moment: Moment) -> Iterator[Asked]:
        """What the stage was asked in a round."""
        yield from {
            "selector": self._selector,
            "designer": self._designer,
            "writer": self._writer,
            "digester": self._digester,
        }[self.name](moment)

    def _selector(self, moment: Moment) -> Iterator[Asked]:
        if moment.choice:
            yield partial(self.stage.question, moment.problem, moment.known), _grading(metrics.selector, moment)

    def _designer(self, moment: Moment) -> Iterator[Asked]:
        if moment.choice:
            notes = self.initial_notes + moment.notes
            ask = partial(self.stage.question, moment.problem, moment.known, moment.choice, notes)
            yield ask, _grading(self._measured, moment)

    def _measured(self, history: History, moment: Moment) -> Grader:
        live = metrics.live(self.judge, self.write) if self.judge and self.write else None
        return metrics.designer(moment, live or metrics.recorded(history))

    def _writer(self, moment: Moment) -> Iterator[Asked]:
        assert self.judge is not None
        for trial in moment.trials:
            if moment.choice and trial.experiment and trial.origin is Origin.EXPERIMENT:
                grader = metrics.writer(moment, moment.choice, self.judge)
                notes = self.initial_notes + moment.notes
                ask = partial(self.stage.question, moment.problem, moment.choice, trial.experiment, notes)
                yield ask, _whatever(grader)

    def _digester(self, moment: Moment) -> Iterator[Asked]:
        if moment.learnt:
            material = Material((), moment.known, moment.before)
            yield partial(self.stage.question, moment.problem, material), lambda history: metrics.digester


def _whatever(grader: Grader) -> Callable[[History], Callable[[str], Grader]]:
    """The grader, whatever became of the run and whatever the model is shown."""
    return lambda history: lambda shown: grader


def _grading(make: Callable[[History, Moment], Grader], moment: Moment) -> Callable[[History], Callable[[str], Grader]]:
    """What a grader is made of that looks at the run, and not at what the model is shown."""
    return lambda history: lambda shown: make(history, moment)


class Parts(NamedTuple):
    """Numbers of questions; no round is in two of them."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]
    rounds: tuple[int, int, int]
    """How many rounds each part is from."""
    how: str = ""
    """What divides them, in words."""
    held_out_rounds: tuple[str, ...] = ()
    """The round of each question that is held out."""


@dataclass
class _Later:
    """Grades one question, once it is known in which part its round is."""

    history: History
    moment: Moment
    make: Callable[[History], Callable[[str], Grader]]
    division: Division | None = None
    shown: str = ""

    def hear(self, shown: str) -> Grader:
        """Take what the model is shown; the grader."""
        self.shown = shown
        return lambda made, refused: self._grader(made, refused)

    @cached_property
    def _grader(self) -> Grader:
        assert self.division is not None
        return self.make(self.division.reach(self.history, self.moment))(self.shown)


def gather(source: Source, school: Any, histories: Sequence[History], most: int, seed: int) -> Parts:
    """Have the school hear every question, and divide them by rounds. ConfigError where there are too few."""
    cases: dict[str, list[int]] = {}
    graders: list[_Later] = []
    asked: dict[str, Moment] = {}
    seen: set[str] = set()
    for history in histories:
        for moment in history.moments:
            for call, make in source.questions(moment):
                graders.append(later := _Later(history, moment, make))
                case = school.hear(call, later.hear)
                if case is not None and (text := school.shown(case)) not in seen:
                    seen.add(text)
                    cases.setdefault(moment.name, []).append(case)
                    asked[moment.name] = moment
    division = divide(asked.values(), seed, source.name)
    for later in graders:
        later.division = division
    return _parts(division, cases, most, seed)


def _parts(division: Division, cases: Mapping[str, Sequence[int]], most: int, seed: int) -> Parts:
    found = []
    for name, share in PARTS.items():
        mine = sorted(case for moment in division.parts[name] for case in cases[moment])
        random.Random(f"{seed} {name}").shuffle(mine)
        found.append(tuple(mine[: max(2, round(most * share))]))
    train, validation, held_out = found
    counts = [len(division.parts[name]) for name in PARTS]
    of = {case: moment for moment, mine in cases.items() for case in mine}
    rounds = tuple(of[case] for case in held_out)
    return Parts(train, validation, held_out, (counts[0], counts[1], counts[2]), division.how, rounds)
