"""What a stage saw when it was asked, read back from a lineage: rounds with what was known, chosen, planned and learnt.

Commits carry the order in which they were made (`lineage.history`), so the population at a round is every trial whose
verdict came before it. What it does not do: render prompts, grade answers, call a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.lineage.history import Chronicle, Commit, Kind
from ksflow.records import Choice, Key, Note, Plan, Population, Problem, Trial, base_of, schema

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
    began: int = 0
    """When, in seconds since 1970."""

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
        """Experiments that were designed for a base, finished, repairs included, in the order of their ids."""
        known = self.final.by_id
        return tuple(t for t in self.final.trials if t.experiment and (of := base_of(t, known)) and of.id == base)

    def until(self, moment: Moment) -> "History":
        """The run as far as it had come when that round began: no later outcome can be asked for."""
        return replace(self, final=moment.known)


@dataclass
class _Reader:
    """Walks the commits of a run in their order."""

    lineage: Lineage
    problem: Problem
    run: str
    verdicts: dict[str, list[Trial]] = field(default_factory=dict)
    """Trial -> the trial with each of its verdicts, in the order in which they were given; or as it failed."""
    key: Key | None = None
    """What the newest verdict holds for."""
    notes: tuple[Note, ...] = ()
    moments: dict[str, Moment] = field(default_factory=dict)
    newest: str = ""
    """The round that began last."""

    def read(self) -> History:
        chronicle = Chronicle(self.lineage.store, self.problem.name, self.run)
        for commit in chronicle.of(Kind.ROUNDS, Kind.NOTES, Kind.TRIALS):
            {Kind.ROUNDS: self._round, Kind.NOTES: self._learn, Kind.TRIALS: self._trial}[commit.kind](commit)
        return History(self.problem, self.run, tuple(self.moments.values()), self._population())

    def _round(self, commit: Commit) -> None:
        if name := commit.trailer("Round"):
            self._select(name, commit) if commit.trailer("Base") else self._begin(name, commit)
        elif commit.text.startswith("plan ") and (cause := commit.trailer("Cause")) in self.moments:
            self._plan(commit, cause)

    def _begin(self, name: str, commit: Commit) -> None:
        self.newest = name
        known = self._population()
        self.moments[name] = Moment(
            self.problem, self.run, name, known, notes=self.notes, before=self.notes, began=commit.date
        )

    def _select(self, name: str, commit: Commit) -> None:
        moment = self.moments.get(name)
        base, reference = commit.trailer("Base"), commit.trailer("Reference")
        if moment and {base, reference} <= moment.known.by_id.keys():
            known = moment.known.closing(self.notes)
            choice = known.choose(base, reference, commit.body)
            self.moments[name] = replace(moment, known=known, notes=self.notes, choice=choice)

    def _plan(self, commit: Commit, name: str) -> None:
        plan: Plan = schema.load("plan", self.lineage.store.read(f"{commit.name}:plan.json"), Plan)
        trials: tuple[Trial, ...] = schema.load("trials", self.lineage.store.read(f"{commit.name}:trials.json"), tuple)
        self.moments[name] = replace(self.moments[name], plan=plan, trials=trials)

    def _learn(self, commit: Commit) -> None:
        if self.newest:
            self.moments[self.newest] = replace(self.moments[self.newest], learnt=True)
        self.notes = schema.load("notes", self.lineage.store.read(f"{commit.name}:notes.json"), tuple)

    def _trial(self, commit: Commit) -> None:
        trial = self.lineage.at(name := commit.trailer("Trial"), commit.name)
        if trial.evaluation is not None or trial.failure:
            self.verdicts.setdefault(name, []).append(trial)
        if trial.evaluation is not None:
            said = trial.evaluation
            self.key = Key(said.problem, said.judge, said.target)

    def _population(self) -> Population:
        """Under the newest verdict's key: what was judged under another one alone is known by its id and no more."""
        found = [self._holding(self.verdicts[name]) for name in sorted(self.verdicts)]
        current = tuple(trial for trial in found if not trial.stale)
        return Population(current, tuple(trial for trial in found if trial.stale))

    def _holding(self, verdicts: Sequence[Trial]) -> Trial:
        """The trial with its newest verdict under the key; where none has it, with its last one, as stale."""
        last = verdicts[-1]
        if self.key is None or last.evaluation is None:
            return last
        for trial in reversed(verdicts):
            if trial.evaluation and not self.key.changed(trial.evaluation):
                return trial
        return replace(last, stale=self.key.changed(last.evaluation))


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
