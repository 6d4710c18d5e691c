"""The questions a stage was asked in recorded rounds, each with what grades an answer to it."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ksflow.optimize import metrics
from ksflow.optimize.history import SHARES, History, Moment, split
from ksflow.optimize.metrics import Grader, Judge
from ksflow.protocols import Writer
from ksflow.records import Material, Note, Origin

Asked = tuple[Callable[[], object], Callable[[str], Grader]]
"""What makes the stage's question as the round asked it, and its grader of all that the model is shown."""


@dataclass(frozen=True)
class Source:
    """What examples are made from."""

    name: str
    """Of the stage: selector, designer, writer, digester."""
    stage: Any
    handbook: tuple[Note, ...] = ()
    """Notes that came with the target."""
    judge: Judge | None = None
    """Needed for writers, and to measure designs live."""
    write: Writer | None = None
    """Carries out new experiments; without it they are looked up in the record."""

    def questions(self, history: History, moment: Moment) -> Iterator[Asked]:
        """What the stage was asked in a round."""
        yield from {
            "selector": self._selector,
            "designer": self._designer,
            "writer": self._writer,
            "digester": self._digester,
        }[self.name](history, moment)

    def _selector(self, history: History, moment: Moment) -> Iterator[Asked]:
        if moment.choice:
            grader = metrics.selector(history, moment)
            yield partial(self.stage.question, moment.problem, moment.known), _whatever(grader)

    def _designer(self, history: History, moment: Moment) -> Iterator[Asked]:
        if moment.choice:
            live = metrics.live(self.judge, self.write) if self.judge and self.write else None
            grader = metrics.designer(moment, live or metrics.recorded(history))
            notes = self.handbook + moment.notes
            yield partial(self.stage.question, moment.problem, moment.known, moment.choice, notes), _whatever(grader)

    def _writer(self, history: History, moment: Moment) -> Iterator[Asked]:
        assert self.judge is not None
        for trial in moment.trials:
            if moment.choice and trial.experiment and trial.origin is Origin.EXPERIMENT:
                grader = metrics.writer(moment, moment.choice, self.judge)
                notes = self.handbook + moment.notes
                yield (
                    partial(self.stage.question, moment.problem, moment.choice, trial.experiment, notes),
                    _whatever(grader),
                )

    def _digester(self, history: History, moment: Moment) -> Iterator[Asked]:
        if moment.learnt:
            material = Material((), moment.known, moment.before)
            yield partial(self.stage.question, moment.problem, material), metrics.digester


def _whatever(grader: Grader) -> Callable[[str], Grader]:
    """The grader, whatever the model is shown."""
    return lambda shown: grader


class Parts(NamedTuple):
    """Numbers of questions; no round is in two of them."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]
    rounds: tuple[int, int, int]
    """How many rounds each part is from."""


def gather(source: Source, school: Any, histories: Sequence[History], most: int, seed: int) -> Parts:
    """Have the school hear every question, and divide them by rounds. ConfigError where there are too few."""
    cases: dict[str, list[int]] = {}
    seen: set[str] = set()
    for history in histories:
        for moment in history.moments:
            for call, grader in source.questions(history, moment):
                case = school.hear(call, grader)
                if case is not None and (text := school.shown(case)) not in seen:
                    seen.add(text)
                    cases.setdefault(moment.name, []).append(case)
    parts = split(list(cases), seed, source.name)
    found = []
    for name, share in SHARES.items():
        mine = sorted(case for moment in parts[name] for case in cases[moment])
        random.Random(f"{seed} {name}").shuffle(mine)
        found.append(tuple(mine[: max(2, round(most * share))]))
    train, validation, held_out = found
    counts = [len(parts[name]) for name in SHARES]
    return Parts(train, validation, held_out, (counts[0], counts[1], counts[2]))
