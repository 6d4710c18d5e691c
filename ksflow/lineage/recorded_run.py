"""A recorded run: its model calls, its verdicts, and the order of its commits. What a replay is made from."""

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage, Recorded
from ksflow.lineage.branches import EXPLANATION
from ksflow.lineage.commit_order import RecordedCommit, RecordedIds, ReplayedOrder
from ksflow.lineage.history import Commit, read_commit
from ksflow.lineage.store import Store
from ksflow.records import Call, Evaluation, Problem, schema

_JUDGED_AGAIN = re.compile(r"\d+ (confirmed|unconfirmed|refuted), ")
"""Commits that rest on verdicts which are on record by themselves."""
_OPENED: dict[tuple[Path, str, str], "RecordedRun"] = {}


class RecordedRun:
    """The sessions of a run. `session` is the one that is being replayed; 0 stands for all of them."""

    def __init__(self, open_lineage: Callable[[], Lineage], name: str) -> None:
        self._open, self._name = open_lineage, name
        self.session = 0
        self.anew = False
        """Whether the session's kernels are judged anew."""
        with self._lineage() as lineage:
            found = [read_commit(lineage.store, commit) for commit in lineage.store.history(*lineage.prefixes)]
            self.commits = sorted((c for c in found if c.order > (0, 0)), key=lambda commit: commit.order)
            self._outside = [commit for commit in reversed(found) if commit.order == (0, 0)]
            """Of commands that were no session: what they asked models is on record, too."""
        if not self.commits:
            raise ConfigError(f"{name} has no session on record; name a run that has one with recorded.run=")

    def __repr__(self) -> str:
        return f"RecordedRun({self._name})"

    def exactly(self, session: int) -> Recorded:
        """The steps of a session as they were, its settings and notes. ConfigError when it is not on record."""
        self.anew = False
        settings, initial_notes = self._settings(session)
        with self._lineage() as lineage:
            steps = [
                RecordedCommit(c.order[1], _tree(lineage.store, c), c.text, c.date) for c in self._commits(session)
            ]
        if [step.number for step in steps] != list(range(1, len(steps) + 1)):
            raise ConfigError(f"session {session} of {self._name} has lost commits, so it cannot be replayed exactly")
        given = re.match(r"arguments:((?:\n- .*)*)", settings)
        arguments = " ".join(line.removeprefix("- ") for line in given[1].split("\n")[1:]) if given else ""
        return ReplayedOrder(steps, self._ids(session), arguments), settings, initial_notes

    def judged_anew(self, session: int) -> Recorded:
        """Steps as they come, with the ids of a recorded session, and its settings and notes."""
        self.anew, (settings, initial_notes) = True, self._settings(session)
        rounds = sum(c.text.startswith(f"round {session}.") for c in self._commits(session))
        return RecordedIds(time.time, self._ids(session), rounds), settings, initial_notes

    def calls(self) -> tuple[Call, ...]:
        """The model calls of the session, in their order; of all of them, other commands' too."""
        commits = self._commits(self.session) if self.session else (*self.commits, *self._outside)
        return tuple(schema.load("call", data, Call) for _, data in self._files("call.json", commits))

    def evaluations(self) -> tuple[tuple[str, Evaluation], ...]:
        """(the kernel's digest, the verdict) each time the judge was asked in the session, in their order.

        Verdicts on kernels whose branches were removed since are left out.
        """
        with self._lineage() as lineage:
            digests = {trial.id: trial.kernel.digest for trial in lineage.all_trials() if trial.kernel}
        found = []
        for commit, data in self._files("evaluation.json", self._commits(self.session)):
            trial, evaluation = commit.trailer("Trial"), schema.load("evaluation", data, Evaluation)
            asked = not _JUDGED_AGAIN.match(commit.text) and evaluation.evidence.repeat is None
            if trial in digests and asked:
                found.append((digests[trial], evaluation))
        return tuple(found)

    def first_verdict(self) -> Evaluation | None:
        """The first of any session: a session may have judged nothing."""
        with contextlib.closing(self._files("evaluation.json", self.commits)) as found:
            return next((schema.load("evaluation", data, Evaluation) for _, data in found), None)

    def _commits(self, session: int) -> list[Commit]:
        return [commit for commit in self.commits if session in (0, commit.order[0])]

    def _files(self, name: str, commits: Iterable[Commit]) -> Generator[tuple[Commit, bytes], None, None]:
        """Those of the commits that have a file, with that."""
        with self._lineage() as lineage:
            for commit in commits:
                entries = lineage.store.entries(commit.name)
                if name in entries:
                    yield commit, lineage.store.read(entries[name])

    def _settings(self, session: int) -> tuple[str, bytes]:
        """The settings and, as JSON, the notes that a session was made with; b"" where it had none."""
        found = [c for c in self._commits(session) if c.text.startswith(f"session {session}\n")]
        if not found:
            raise ConfigError(
                f"all {self.commits[-1].order[0]} sessions of {self._name} are replayed in this run; "
                "name a new one with run=, or another recorded one with recorded.run="
            )
        self.session = session
        with self._lineage() as lineage:
            entries = lineage.store.entries(found[0].name)
            notes = lineage.store.read(entries["handbook.json"]) if "handbook.json" in entries else b""
            return lineage.store.read(entries["session.yaml"]).decode(), notes

    def _ids(self, session: int) -> Mapping[str, tuple[str, ...]]:
        """The name of a round, or the repaired trial -> the ids that were given."""
        found = {}
        for commit in self._commits(session):
            if cause := commit.trailer("Cause"):
                found[cause] = tuple(re.findall(r"\d{5,}", commit.text.partition("\n")[0]))
        return found

    @contextlib.contextmanager
    def _lineage(self) -> Iterator[Lineage]:
        lineage = self._open()
        try:
            yield lineage
        finally:
            lineage.close()


def recorded_run(lineage: Callable[..., Lineage], problem: Problem, run: str = "main") -> RecordedRun:
    """The recorded run of a problem; the same object for all who ask in this process. ConfigError, LineageError."""
    opened = lineage(problem=problem.name, run=run, create=False)
    key = (opened.store.path.resolve(), problem.name, run)
    opened.close()
    if key not in _OPENED:
        name = f"run {run} of {problem.name} in {opened.store.path}"
        _OPENED[key] = RecordedRun(lambda: lineage(problem=problem.name, run=run, create=False), name)
    return _OPENED[key]


def _tree(store: Store, commit: Commit) -> str:
    """The tree of a commit as this version writes the same records: an older one may have laid them out otherwise.

    An explanation is no step of a run.
    """
    entries = {name: blob for name, blob in store.entries(commit.name).items() if name != EXPLANATION}
    for name in entries:
        kind = name.removesuffix(".json")
        if kind in schema.KINDS and kind != name:
            written = schema.dump(kind, schema.load(kind, store.read(entries[name]), object))
            entries[name] = store.blob(written)
    return store.tree(entries)
