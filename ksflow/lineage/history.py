"""What sessions wrote into a run, read back commit by commit in the order in which they wrote it.

    ROUNDS   a round began, what it selected, what it planned      CALLS    model calls
    NOTES    what was learnt                                       TRIALS   kernels, failures and verdicts

This is the only reader of a run's past: prompts are compiled from it (`optimize`), training data is made of it
(`dataset`), replays take their commits from it (`recorded_run`). Order is that of the steps on record
(`Step: session.number`), never that of ids or of branches: a seed that was judged again yesterday is newer than a trial
of last week. It renders no prompt, grades no answer and calls no model.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage, commit_message
from ksflow.lineage.branches import Branches, newest_holding
from ksflow.lineage.store import Store
from ksflow.records import Choice, Key, Note, Plan, Population, Problem, Trial, base_of, schema

Order = tuple[int, int]
"""Session, and number within it; zeros where a commit is from before there were sessions."""


class Kind(StrEnum):
    """Which of a run's histories a commit belongs to."""

    ROUNDS = "rounds"
    NOTES = "notes"
    CALLS = "calls"
    TRIALS = "trials"


class Commit(NamedTuple):
    """One thing that a session wrote."""

    order: Order
    name: str
    """The id of the commit."""
    tree: str
    date: int
    """Seconds since 1970."""
    text: str
    """Its message, without the step."""
    kind: Kind | None = None

    def trailer(self, key: str) -> str:
        """The last line `key: value` of the message, or "". What models wrote is indented, so it is none."""
        found = re.findall(rf"^{key}: (\S+)$", self.text, re.MULTILINE)
        return found[-1] if found else ""

    @property
    def body(self) -> str:
        """The text that a stage wrote, without its indentation."""
        return "\n".join(line[4:] for line in self.text.split("\n") if line.startswith("    "))


def read_commit(store: Store, name: str, kind: Kind | None = None) -> Commit:
    """One commit by its id. Raises LineageError."""
    tree, date, message = store.commit_facts(name)
    text, step = commit_message.without_step(message)
    session, _, number = step.partition(".")
    return Commit((int(session), int(number)) if step else (0, 0), name, tree, date, text, kind)


@dataclass(frozen=True)
class RoundSnapshot:
    """A round as it began, and what came of it."""

    problem: str
    run: str
    round: str
    """`<session>.<number>`"""
    known: Population
    """Every finished trial when it began."""
    notes: tuple[Note, ...] = ()
    """What was learnt until the selection."""
    selected: bool = False
    """Whether a choice is on record."""
    choice: Choice | None = None
    """The choice, where its trials are still there."""
    plan: Plan | None = None
    trials: tuple[Trial, ...] = ()
    """The experiments that were dispatched, without their kernels."""
    learnt: bool = False
    """Whether notes were written in it."""
    before: tuple[Note, ...] = ()
    """What was learnt when it began."""
    began: int = 0
    """Seconds since 1970."""

    @property
    def name(self) -> str:
        """Tells rounds apart, whatever the run."""
        return f"{self.problem}/{self.run}/{self.round}"


@dataclass(frozen=True)
class RunHistory:
    """A run: its rounds, and what finally became of its trials."""

    problem: Problem
    run: str
    rounds: tuple[RoundSnapshot, ...]
    final: Population

    def children(self, base: str) -> tuple[Trial, ...]:
        """Experiments that were designed for a base, finished, repairs included, in the order of their ids."""
        known = self.final.by_id
        return tuple(t for t in self.final.trials if t.experiment and (of := base_of(t, known)) and of.id == base)

    def until(self, snapshot: RoundSnapshot) -> "RunHistory":
        """The run as far as it had come when that round began: no later outcome can be asked for."""
        return replace(self, final=snapshot.known)


class RunReader:
    """Walks the commits of one run; `rounds`, `key`, `notes` and `population` are what it has met so far.

    `slim` makes of each trial what is to be remembered of it. With it the rounds hold no populations, choices or plans,
    so that the memory for a long run stays small.
    """

    def __init__(self, store: Store, problem: str, run: str, slim: Callable[[Trial], Trial] | None = None) -> None:
        self.store, self.problem, self.run, self._slim = store, problem, run, slim
        self.branches = Branches(store, f"{problem}/{run}/")
        self.heads = refs_by_trial(store, f"refs/heads/{problem}/{run}/")
        """Trial -> the newest commit of its branch."""
        self.rounds: dict[str, RoundSnapshot] = {}
        self.key: Key | None = None
        """What the newest verdict holds for, whichever trial it is on."""
        self.notes: tuple[Note, ...] = ()
        self._verdicts: dict[str, list[Trial]] = {}
        """Trial -> the trial with each of its verdicts, in the order in which they were given; or as it failed."""

    def commits(self, *kinds: Kind) -> list[Commit]:
        """The commits of some kinds, in order. Raises LineageError."""
        found: list[Commit] = []
        for kind in kinds:
            found += self._trial_commits() if kind is Kind.TRIALS else self._chain(kind)
        return sorted(found, key=lambda commit: commit.order)

    def read(self) -> "RunReader":
        """Walk all rounds, notes and trials. Raises LineageError."""
        take = {Kind.ROUNDS: self._take_round, Kind.NOTES: self._take_notes, Kind.TRIALS: self._take_trial}
        for commit in self.commits(*take):
            assert commit.kind is not None
            take[commit.kind](commit)
        return self

    def trials(self, key: Key | None) -> tuple[Trial, ...]:
        """Every judged or failed trial by its id, with its newest verdict under the key; without one, as stale."""
        found = sorted(self._verdicts.items())
        return tuple(newest_holding(verdicts[-1], reversed(verdicts[:-1]), key) for _, verdicts in found)

    def population(self) -> Population:
        """Under the newest verdict's key: what was judged under another one alone is known by its id and no more."""
        found = self.trials(self.key)
        return Population(
            tuple(trial for trial in found if not trial.stale), tuple(trial for trial in found if trial.stale)
        )

    def _chain(self, kind: Kind) -> Iterator[Commit]:
        for name in reversed(self.store.history(f"refs/ksflow/{self.problem}/{self.run}/{kind.value}")):
            yield read_commit(self.store, name, kind)

    def _trial_commits(self) -> Iterator[Commit]:
        """Of every branch the commits that are about its own trial: below them are those of its parents."""
        for trial, name in self.heads.items():
            found = []
            while (commit := read_commit(self.store, name, Kind.TRIALS)).trailer("Trial") == trial:
                if not commit.trailer(commit_message.ANNOTATION):
                    found.append(commit)
                parents = self.store.header(name)[0]
                if not parents:
                    break
                name = parents[0]
            yield from reversed(found)

    def _take_round(self, commit: Commit) -> None:
        if name := commit.trailer("Round"):
            if commit.trailer("Base"):
                self._take_choice(name, commit)
            else:
                known = Population(()) if self._slim else self.population()
                self.rounds[name] = RoundSnapshot(
                    self.problem, self.run, name, known, notes=self.notes, before=self.notes, began=commit.date
                )
        elif commit.text.startswith("plan ") and (name := commit.trailer("Cause")) in self.rounds:
            plan = None if self._slim else schema.load("plan", self.store.read(f"{commit.name}:plan.json"), Plan)
            trials = schema.load("trials", self.store.read(f"{commit.name}:trials.json"), tuple)
            self.rounds[name] = replace(self.rounds[name], plan=plan, trials=tuple(map(self._slim or _same, trials)))

    def _take_choice(self, name: str, commit: Commit) -> None:
        if name not in self.rounds:
            return
        snapshot = replace(self.rounds[name], selected=True)
        base, reference = commit.trailer("Base"), commit.trailer("Reference")
        if {base, reference} <= snapshot.known.by_id.keys():
            known = snapshot.known.pruned_by(self.notes)
            choice = known.choose(base, reference, commit.body)
            snapshot = replace(snapshot, known=known, notes=self.notes, choice=choice)
        self.rounds[name] = snapshot

    def _take_notes(self, commit: Commit) -> None:
        if self._slim:
            return
        if self.rounds:
            newest = next(reversed(self.rounds))
            self.rounds[newest] = replace(self.rounds[newest], learnt=True)
        self.notes = schema.load("notes", self.store.read(f"{commit.name}:notes.json"), tuple)

    def _take_trial(self, commit: Commit) -> None:
        trial = self.branches.load(commit.trailer("Trial"), commit.name)
        if trial.evaluation is not None:
            self.key = Key(trial.evaluation.problem, trial.evaluation.judge, trial.evaluation.target)
        if trial.evaluation is not None or trial.failure:
            self._verdicts.setdefault(trial.id, []).append((self._slim or _same)(trial))


def _same(trial: Trial) -> Trial:
    return trial


def refs_by_trial(store: Store, prefix: str) -> dict[str, str]:
    """The refs right below a prefix by the last part of their names, sorted."""
    return dict(sorted((ref.rpartition("/")[2], commit) for ref, commit in store.refs(prefix).items()))


def read_histories(
    open_lineage: Callable[..., Lineage], problem: Problem, names: Sequence[str] = ()
) -> tuple[RunHistory, ...]:
    """The runs of a problem, all or some. LineageError where there is no lineage, ConfigError for a run it lacks."""
    lineage = open_lineage(problem=problem.name, run="main", create=False)
    try:
        known = [run for name, run in lineage.store.runs() if name == problem.name]
        if missing := [name for name in names if name not in known]:
            raise ConfigError(f"{problem.name} has no run {missing[0]}; runs: {', '.join(known) or 'none'}")
        readers = [RunReader(lineage.store, problem.name, run).read() for run in names or known]
    finally:
        lineage.close()
    return tuple(
        RunHistory(problem, reader.run, tuple(reader.rounds.values()), reader.population()) for reader in readers
    )
