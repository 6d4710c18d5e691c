"""What a stage saw when it was asked, read back from a lineage: rounds with what was known, chosen, planned and learnt.

Commits carry the order in which they were made, so the population at a round is every trial whose verdict came before
it. What it does not do: render prompts, grade answers, call a model.
"""

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ksflow import schema
from ksflow.errors import ConfigError, counted
from ksflow.lineage import Lineage, message
from ksflow.records import Choice, Evaluation, Key, Note, Plan, Population, Problem, Trial

Open = Callable[..., Lineage]


@dataclass(frozen=True)
class Moment:
    """A round as it began, and what came of it."""

    problem: Problem
    run: str
    round: str
    """`<session>.<number>`"""
    known: Population
    """Every finished trial when it began."""
    notes: tuple[Note, ...] = ()
    """What was learnt until the selection."""
    choice: Choice | None = None
    plan: Plan | None = None
    trials: tuple[Trial, ...] = ()
    """The experiments that were dispatched, without their kernels."""
    learnt: bool = False
    """Notes were written in it."""
    before: tuple[Note, ...] = ()
    """What was learnt when it began."""

    @property
    def name(self) -> str:
        """Tells rounds apart, whatever the run."""
        return f"{self.problem.name}/{self.run}/{self.round}"


@dataclass(frozen=True)
class History:
    """A run: its rounds, and what finally became of its trials."""

    problem: Problem
    run: str
    moments: tuple[Moment, ...]
    final: Population

    def children(self, base: str) -> tuple[Trial, ...]:
        """Experiments on a base, finished, in the order of their ids."""
        return tuple(t for t in self.final.trials if t.experiment and t.parents[:1] == (base,))


@dataclass
class _Reader:
    """Walks the commits of a run in their order."""

    lineage: Lineage
    problem: Problem
    run: str
    known: dict[str, Trial] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    moments: dict[str, Moment] = field(default_factory=dict)
    newest: str = ""
    """The round that began last."""

    def read(self) -> History:
        for commit, subject, text in _commits(self.lineage):
            self._take(commit, subject, text)
        return History(self.problem, self.run, tuple(self.moments.values()), self._population())

    def _take(self, commit: str, subject: str, text: str) -> None:
        if name := _trailer(text, "Round"):
            self._select(name, text) if subject.startswith("select ") else self._begin(name)
        elif subject.startswith("plan ") and (cause := _trailer(text, "Cause")) in self.moments:
            self._plan(commit, cause)
        elif re.match(r"\d+ notes$", subject):
            self._learn(commit)
        elif name := _trailer(text, "Trial"):
            self._trial(commit, name)

    def _begin(self, name: str) -> None:
        self.newest = name
        self.moments[name] = Moment(
            self.problem, self.run, name, self._population(), notes=self.notes, before=self.notes
        )

    def _select(self, name: str, text: str) -> None:
        moment = self.moments.get(name)
        base, reference = _trailer(text, "Base"), _trailer(text, "Reference")
        if moment and {base, reference} <= moment.known.by_id.keys():
            known = moment.known.closing(self.notes)
            self.moments[name] = replace(
                moment, known=known, notes=self.notes, choice=known.choose(base, reference, _body(text))
            )

    def _plan(self, commit: str, name: str) -> None:
        plan: Plan = schema.load("plan", self.lineage.store.read(f"{commit}:plan.json"), Plan)
        trials: tuple[Trial, ...] = schema.load("trials", self.lineage.store.read(f"{commit}:trials.json"), tuple)
        self.moments[name] = replace(self.moments[name], plan=plan, trials=trials)

    def _learn(self, commit: str) -> None:
        if self.newest:
            self.moments[self.newest] = replace(self.moments[self.newest], learnt=True)
        self.notes = schema.load("notes", self.lineage.store.read(f"{commit}:notes.json"), tuple)

    def _trial(self, commit: str, name: str) -> None:
        files = self.lineage.store.entries(commit)
        if "trial.json" not in files:
            return
        trial = self.lineage.at(name, commit)
        if trial.evaluation is not None or trial.failure:
            self.known[name] = trial

    def _population(self) -> Population:
        """Under the newest verdict's key: what was judged elsewhere is known by its id alone."""
        trials = [self.known[name] for name in sorted(self.known)]
        newest = next((trial.evaluation for trial in reversed([*self.known.values()]) if trial.evaluation), None)
        if newest is None:
            return Population(tuple(trials))
        key = _key(newest)
        changed = {t.id: key.changed(t.evaluation) for t in trials if t.evaluation}
        stale = tuple(replace(t, stale=changed[t.id]) for t in trials if changed.get(t.id))
        return Population(tuple(t for t in trials if not changed.get(t.id)), stale)


def _key(evaluation: Evaluation) -> Key:
    return Key(evaluation.problem, evaluation.judge, evaluation.target)


def _commits(lineage: Lineage) -> Iterator[tuple[str, str, str]]:
    """(commit, subject, message) of what sessions wrote, in that order."""
    found = []
    for name in lineage.store.history(*lineage.prefixes):
        _, _, said = lineage.store.told(name)
        text, step = message.without_step(said)
        if step:
            session, number = step.split(".")
            found.append((int(session), int(number), name, text))
    for _, _, name, text in sorted(found):
        yield name, text.partition("\n")[0], text


def _trailer(text: str, key: str) -> str:
    """Of a message; what models wrote is indented, and no trailer."""
    found = re.findall(rf"^{key}: (\S+)$", text, re.MULTILINE)
    return found[-1] if found else ""


def _body(text: str) -> str:
    return "\n".join(line[4:] for line in text.split("\n") if line.startswith("    "))


def histories(open_: Open, problem: Problem, runs: Sequence[str] = ()) -> tuple[History, ...]:
    """The runs of a problem, all or some. LineageError where there is no lineage, ConfigError for a run it lacks."""
    opened = partial(open_, problem=problem.name, create=False)
    first = opened(run="main")
    try:
        prefix = f"refs/heads/{problem.name}/"
        known = sorted({name[len(prefix) :].rpartition("/")[0] for name in first.store.refs(prefix)})
    finally:
        first.close()
    if missing := [name for name in runs if name not in known]:
        raise ConfigError(f"{problem.name} has no run {missing[0]}; runs: {', '.join(known) or 'none'}")
    return tuple(_history(opened, problem, run) for run in runs or known)


def _history(opened: Callable[..., Lineage], problem: Problem, run: str) -> History:
    lineage = opened(run=run)
    try:
        return _Reader(lineage, problem, run).read()
    finally:
        lineage.close()


# -- splits --------------------------------------------------------------------------------------

SHARES = {"train": 0.4, "validation": 0.3, "held out": 0.3}
"""Of the rounds."""
_LEAST = 2
"""Rounds that each of them needs."""


def split(rounds: Sequence[str], seed: int, what: str, least: int = _LEAST) -> dict[str, frozenset[str]]:
    """Name of a part -> its rounds, drawn from the seed. ConfigError says how many there are and are needed."""
    names = sorted(set(rounds))
    if len(names) < least * len(SHARES):
        raise ConfigError(
            f"{counted(len(names), 'round')} to learn from for {what}, and at least {least * len(SHARES)} are needed: "
            "search on with `python -m ksflow`, or name more with optimize.runs= or optimize.problems="
        )
    random.Random(hashlib.sha256(f"{seed}".encode()).digest()).shuffle(names)
    held = max(least, round(SHARES["held out"] * len(names)))
    checked = max(least, round(SHARES["validation"] * len(names)))
    parts = names[held + checked :], names[held : held + checked], names[:held]
    return {name: frozenset(part) for name, part in zip(SHARES, parts, strict=True)}
