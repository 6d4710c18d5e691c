"""What sessions wrote into a run, read back commit by commit in the order in which they wrote it.

    ROUNDS   a round began, what it selected, what it planned      CALLS    model calls
    NOTES    what was learnt                                       TRIALS   kernels, failures and verdicts

This and `rounds` are the only readers of a run's past: prompts are compiled from it (`optimize`), training data is made
of it (`dataset`), a replay takes from it what was asked, answered and judged (`RecordedRun`), and a kernel is found in
it by what a person calls it (`locate`). Order is that of the steps on record (`Step: session.number`), never that of
ids or of branches: a seed that was judged again yesterday is newer than a trial of last week. Neither renders a prompt,
grades an answer or calls a model.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from ksflow.errors import ConfigError
from ksflow.lineage.lineage import Lineage
from ksflow.lineage.locks import Turns
from ksflow.lineage.record import ANNOTATION, step_of, without_step
from ksflow.lineage.store import Store, trailer
from ksflow.lineage.trial_log import Recorded
from ksflow.records import Call, Evaluation, Problem, RoundStep, schema

_OPENED: dict[tuple[Path, str, str], "RecordedRun"] = {}

Order = tuple[int, int]  # session, and number within it; zeros where a commit is from before there were sessions


class CommitKind(StrEnum):
    """Which of a run's histories a commit belongs to."""

    ROUNDS = "rounds"
    NOTES = "notes"
    CALLS = "calls"
    TRIALS = "trials"


class Commit(NamedTuple):
    """One thing that a session wrote."""

    order: Order
    name: str  # the id of the commit
    date: int  # seconds since 1970
    text: str  # its message, without the step
    kind: CommitKind | None = None

    def trailer(self, key: str) -> str:
        """The last line `key: value` of the message, or "". What models wrote is indented, so it is none."""
        return trailer(self.text, key)


def read_commit(store: Store, name: str, kind: CommitKind | None = None) -> Commit:
    """One commit by its id. Raises LineageError."""
    header = store.header(name)
    text, step = without_step(header.text)
    session, _, number = step.partition(".")
    return Commit((int(session), int(number)) if step else (0, 0), name, header.date, text, kind)


class RecordedRun:
    """The sessions of a run. `session` is the one that is being replayed; 0 stands for all of them."""

    def __init__(self, open_lineage: Callable[[], Lineage], name: str) -> None:
        self._open, self._name = open_lineage, name
        self.session = 0
        self.judges_anew = False  # whether the session's kernels are judged anew
        with closing(self._open()) as lineage:
            commits = [read_commit(lineage.store, commit) for commit in lineage.store.history(*lineage.prefixes)]
            self.commits = sorted((c for c in commits if c.order > (0, 0)), key=lambda commit: commit.order)
            self._outside = [commit for commit in reversed(commits) if commit.order == (0, 0)]
            """Of commands that were no session: what they asked models is on record, too."""
        if not self.commits:
            raise ConfigError(f"{name} has no session on record; name a run that has one with recorded.run=")

    def __repr__(self) -> str:
        return f"RecordedRun({self._name})"

    def open(self, session: int, anew: bool = False) -> Recorded:
        """What a session wrote, its settings and notes. ConfigError when it is not on record.

        anew: its kernels are judged anew, and what is written comes as it comes; else in the order in which it came.
        """
        self.judges_anew, (settings, initial_notes) = anew, self._settings(session)
        commits = self._commits(session)
        if not anew and [commit.order[1] for commit in commits] != list(range(1, len(commits) + 1)):
            raise ConfigError(
                f"session {session} of {self._name} has lost commits: evaluator=local judges what is left"
            )
        with closing(self._open()) as lineage:
            steps = [step_of(lineage.store, commit.name) for commit in commits]
            turns = [_turn(lineage.store, commit, step) for commit, step in zip(commits, steps, strict=True)]
        ids = {step.cause: step.ids for step in steps if step and step.ids}
        rounds = sum(bool(step and step.is_start) for step in steps)
        lines = takewhile(lambda line: line.startswith("- "), settings.removeprefix("arguments:\n").split("\n"))
        arguments = " ".join(line.removeprefix("- ") for line in lines)
        return Turns(ids, rounds, None if anew else [*filter(None, turns)], arguments), settings, initial_notes

    def calls(self) -> tuple[Call, ...]:
        """The model calls of the session, in their order; of all of them, other commands' too."""
        commits = self._commits(self.session) if self.session else (*self.commits, *self._outside)
        return tuple(schema.load("call", data, Call) for _, data in self._files("call.json", commits))

    def evaluations(self) -> tuple[tuple[str, Evaluation], ...]:
        """(the kernel's digest, the verdict) each time the judge was asked in the session, in their order.

        Verdicts on kernels whose branches were removed since are left out.
        """
        with closing(self._open()) as lineage:
            digests = {trial.id: trial.kernel.digest for trial in lineage.all_trials() if trial.kernel}
        verdicts, again = [], set[str]()
        for commit, data in self._files("evaluation.json", self._commits(self.session)):
            trial, evaluation = commit.trailer("Trial"), schema.load("evaluation", data, Evaluation)
            asked = trial not in again and evaluation.evidence.repeat is None
            again.discard(trial)
            if not commit.trailer("Verdict"):  # the trial's next commit rests on it
                asked, again = True, again | {trial}
            if trial in digests and asked:
                verdicts.append((digests[trial], evaluation))
        return tuple(verdicts)

    def first_verdict(self) -> Evaluation | None:
        """The first of any session: a session may have judged nothing."""
        with closing(self._files("evaluation.json", self.commits)) as files:
            return next((schema.load("evaluation", data, Evaluation) for _, data in files), None)

    def _commits(self, session: int) -> list[Commit]:
        return [commit for commit in self.commits if session in (0, commit.order[0])]

    def _files(self, name: str, commits: Iterable[Commit]) -> Generator[tuple[Commit, bytes], None, None]:
        """Those of the commits that have a file, with that."""
        with closing(self._open()) as lineage:
            for commit in commits:
                entries = lineage.store.entries(commit.name)
                if name in entries:
                    yield commit, lineage.store.read(entries[name])

    def _settings(self, session: int) -> tuple[str, bytes]:
        """The settings and, as JSON, the notes that a session was made with; b"" where it had none."""
        commits = [c for c in self._commits(session) if c.trailer("Session") == str(session)]
        if not commits:
            raise ConfigError(
                f"all {self.commits[-1].order[0]} sessions of {self._name} are replayed in this run; "
                "name a new one with run=, or another recorded one with recorded.run="
            )
        self.session = session
        with closing(self._open()) as lineage:
            entries = lineage.store.entries(commits[0].name)
            notes = lineage.store.read(entries["handbook.json"]) if "handbook.json" in entries else b""
            return lineage.store.read(entries["session.yaml"]).decode(), notes


def recorded_run(lineage: Callable[..., Lineage], problem: Problem, run: str = "main") -> RecordedRun:
    """The recorded run of a problem; the same object for all who ask in this process. ConfigError, LineageError."""
    with closing(lineage(problem=problem.name, run=run, create=False)) as opened:
        path = opened.store.path
    key = (path.resolve(), problem.name, run)
    if key not in _OPENED:
        name = f"run {run} of {problem.name} in {path}"
        _OPENED[key] = RecordedRun(lambda: lineage(problem=problem.name, run=run, create=False), name)
    return _OPENED[key]


def _turn(store: Store, commit: Commit, step: RoundStep | None) -> str:
    """What a replay waits with until it is its turn, by the name that `Lineage` gives it; empty for all else."""
    trial = commit.trailer("Trial")
    if step and not step.base:
        return f"round {step.cause}" if step.is_start else f"ids for {step.cause}"
    if trial and not commit.trailer(ANNOTATION) and "trial.json" in store.entries(commit.name):
        return f"{trial} {commit.trailer('Verdict') or 'written'}"
    trials = commit.trailer("Trials")
    return f"notes of {trials}" if trials else ""


@dataclass(frozen=True)
class Place:
    """A kernel's branch, and one of its commits."""

    problem: str
    run: str
    trial: str
    commit: str

    @property
    def branch(self) -> str:
        """The branch's short name."""
        return f"{self.problem}/{self.run}/{self.trial}"


def locate(store: Store, word: str, problem: str, run: str) -> Place:
    """Where `word` is; a bare trial id belongs to `problem` and `run`. Raises ConfigError."""
    branch = word.removeprefix("refs/heads/") if "/" in word else f"{problem}/{run}/{word}"
    if word.isdigit() and len(word) < 5:
        branch = f"{problem}/{run}/{word:0>5}"
    if branch.count("/") == 2 and (tip := store.ref(f"refs/heads/{branch}")):
        return _place(branch, tip)
    commits = store.commits(word.lower())
    if not commits:
        raise ConfigError(
            f"no commit, branch or trial {word!r} in {store.path} (problem={problem} run={run}); "
            "`python -m ksflow lineage` lists the trials"
        )
    if len(commits) > 1:
        raise ConfigError(f"{word!r} may be {', '.join(name[:12] for name in commits[:4])}; give more of it")
    commit = commits[0]
    here = f"{problem}/{run}/"
    trial = store.trailer(commit, "Trial")
    branches = [name for name in store.containing(commit) if name.count("/") == 2]
    ends = [name for name in branches if store.ref(f"refs/heads/{name}") == commit]
    named = [name for name in branches if name.rpartition("/")[2] == trial]
    candidates = [name for name in named if name in ends] or named or ends
    if not candidates:
        raise ConfigError(f"commit {commit[:12]} is no verdict on a kernel; name a commit of a kernel's branch")
    chosen = min(candidates, key=lambda name: (not name.startswith(here), name))
    return _place(chosen, commit)


def _place(branch: str, commit: str) -> Place:
    problem, run, trial = branch.split("/")
    return Place(problem, run, trial, commit)
