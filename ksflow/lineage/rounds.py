"""The rounds of a run, read back: what each knew when it began, what it decided, and what came of it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ksflow.errors import ConfigError
from ksflow.lineage.history import Commit, CommitKind, read_commit
from ksflow.lineage.index import Decisions
from ksflow.lineage.lineage import Lineage
from ksflow.lineage.record import ANNOTATION, Branches, newest_holding, plan_of, step_of
from ksflow.lineage.store import Store
from ksflow.records import Key, Note, Plan, Population, Problem, RoundStep, Selection, Trial, base_of, by_number, schema


@dataclass(frozen=True)
class RoundSnapshot:
    """A round as it began, and what came of it."""

    problem: str
    run: str
    round: str  # `<session>.<number>`
    population: Population  # every finished trial when it began
    notes: tuple[Note, ...] = ()  # what was learnt until the selection
    selected: bool = False  # whether a selection is on record
    selection: Selection | None = None  # the selection, where its trials are still there
    plan: Plan | None = None
    trials: tuple[Trial, ...] = ()  # the experiments that were dispatched, without their kernels
    learnt: bool = False  # whether notes were written in it
    before: tuple[Note, ...] = ()  # what was learnt when it began
    began: int = 0  # seconds since 1970

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


class RunReader:
    """Walks the commits of one run; `rounds`, `key`, `notes` and `population` are what it has met so far.

    `slim` makes of each trial what is to be remembered of it. With it the rounds hold no populations, selections
    or plans, so that the memory for a long run stays small.
    """

    def __init__(self, store: Store, problem: str, run: str, slim: Callable[[Trial], Trial] | None = None) -> None:
        self.store, self.problem, self.run, self._slim = store, problem, run, slim
        self.branches = Branches(store, f"{problem}/{run}/")
        refs = store.refs(f"refs/heads/{problem}/{run}/")
        heads = {ref.rpartition("/")[2]: commit for ref, commit in refs.items()}
        self.heads = {name: heads[name] for name in sorted(heads, key=by_number)}
        """Trial -> the newest commit of its branch."""
        self.rounds: dict[str, RoundSnapshot] = {}
        self.key: Key | None = None  # what the newest verdict holds for, whichever trial it is on
        self.notes: tuple[Note, ...] = ()
        self._decisions = Decisions()
        self._verdicts: dict[str, list[Trial]] = {}
        """Trial -> the trial with each of its verdicts, in the order in which they were given; or as it failed."""

    def commits(self, *kinds: CommitKind) -> list[Commit]:
        """The commits of some kinds, in order. Raises LineageError."""
        commits: list[Commit] = []
        for kind in kinds:
            if kind is CommitKind.TRIALS:
                for trial, head in self.heads.items():
                    found = (read_commit(self.store, name, kind) for name in self.branches.own(trial, head))
                    commits += reversed([commit for commit in found if not commit.trailer(ANNOTATION)])
            else:
                names = reversed(self.store.history(f"refs/ksflow/{self.problem}/{self.run}/{kind.value}"))
                commits += [read_commit(self.store, name, kind) for name in names]
        return sorted(commits, key=lambda commit: commit.order)

    def read(self) -> "RunReader":
        """Walk all rounds, notes and trials. Raises LineageError."""
        take = {
            CommitKind.ROUNDS: self._take_round,
            CommitKind.NOTES: self._take_notes,
            CommitKind.TRIALS: self._take_trial,
        }
        for commit in self.commits(*take):
            assert commit.kind is not None
            take[commit.kind](commit)
        return self

    def trials(self, key: Key | None) -> tuple[Trial, ...]:
        """Every judged or failed trial by its id, with its newest verdict under the key; without one, as stale."""
        rows = sorted(self._verdicts.items())
        return tuple(newest_holding(verdicts[-1], reversed(verdicts[:-1]), key) for _, verdicts in rows)

    def population(self) -> Population:
        """Under the newest verdict's key: what was judged under another one alone is known by its id and no more."""
        trials = self.trials(self.key)
        return Population(tuple(t for t in trials if not t.stale), tuple(t for t in trials if t.stale))

    def _take_round(self, commit: Commit) -> None:
        step = step_of(self.store, commit.name)
        if step and step.is_start:
            population = Population(()) if self._slim else self.population().with_plans(self._decisions.plans)
            self.rounds[step.cause] = RoundSnapshot(
                self.problem, self.run, step.cause, population, notes=self.notes, before=self.notes, began=commit.date
            )
        elif step and step.cause in self.rounds:
            snapshot, plan = self.rounds[step.cause], None if self._slim else plan_of(self.store, commit.name, step)
            self._decisions.take(step, plan)
            if step.base:
                self.rounds[step.cause] = self._chosen(replace(snapshot, selected=True), step)
            elif step.planned:
                trials = schema.load("trials", self.store.read(f"{commit.name}:trials.json"), tuple)
                trials = tuple(map(self._slim or _same, trials))
                self.rounds[step.cause] = replace(snapshot, plan=plan, trials=trials)

    def _chosen(self, snapshot: RoundSnapshot, step: RoundStep) -> RoundSnapshot:
        if not {step.base, step.reference} <= snapshot.population.by_id.keys():
            return snapshot
        population = snapshot.population.prune(self.notes)
        selection = population.choose(step.base, step.reference, step.rationale)
        return replace(snapshot, population=population, notes=self.notes, selection=selection)

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


def read_histories(
    open_lineage: Callable[..., Lineage], problem: Problem, names: Sequence[str] = ()
) -> tuple[RunHistory, ...]:
    """The runs of a problem, all or some. LineageError where there is no lineage, ConfigError for a run it lacks."""
    with closing(open_lineage(problem=problem.name, run="main", create=False)) as lineage:
        known = [run for name, run in lineage.store.runs() if name == problem.name]
        if missing := [name for name in names if name not in known]:
            raise ConfigError(f"{problem.name} has no run {missing[0]}; runs: {', '.join(known) or 'none'}")
        readers = [RunReader(lineage.store, problem.name, run).read() for run in names or known]
    return tuple(RunHistory(problem, each.run, (*each.rounds.values(),), each.population()) for each in readers)
