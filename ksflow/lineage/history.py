"""What sessions wrote into one run, commit by commit, in the order in which they wrote it.

    ROUNDS   a round began, what it selected, what it planned      CALLS    model calls
    NOTES    what was learnt                                       TRIALS   kernels, failures and verdicts

Whoever learns from runs reads them through this: prompts are compiled from it (`optimize`), training data is made of it
(`dataset`). Order is that of the steps on record (`Step: session.number`), never that of ids or of branches: a seed
that was judged again yesterday is newer than a trial of last week. What it does not do: read a trial's files, or say
what an outcome is worth.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ksflow.lineage import commit_message
from ksflow.lineage.store import Store
from ksflow.records import Evaluation, schema

Place = tuple[int, int]
"""Session, and number within it; zeros where a commit is from before there were sessions."""


class Kind(StrEnum):
    """Which of a run's histories a commit belongs to."""

    ROUNDS = "rounds"
    NOTES = "notes"
    CALLS = "calls"
    TRIALS = "trials"


class Commit(NamedTuple):
    """One thing that a session wrote."""

    place: Place
    kind: Kind
    name: str
    """The commit's id."""
    date: int
    """Seconds since 1970."""
    text: str
    """Its message, without the step."""

    def trailer(self, key: str) -> str:
        """The last line `key: value` of the message; empty where there is none. What models wrote is indented, and so
        never taken for one.
        """
        found = re.findall(rf"^{key}: (\S+)$", self.text, re.MULTILINE)
        return found[-1] if found else ""

    @property
    def body(self) -> str:
        """What a stage wrote."""
        return "\n".join(line[4:] for line in self.text.split("\n") if line.startswith("    "))

    @property
    def judged(self) -> bool:
        """Whether it is a verdict on a trial."""
        return self.kind is Kind.TRIALS and bool(self.trailer("Verdict"))


class Chronicle:
    """The commits of one run. It is read when it is asked."""

    def __init__(self, store: Store, problem: str, run: str) -> None:
        self._store = store
        self._heads = f"refs/heads/{problem}/{run}/"
        self._side = f"refs/ksflow/{problem}/{run}/"

    def __iter__(self) -> Iterator[Commit]:
        """Everything, in order. Raises LineageError."""
        return iter(self.of(*Kind))

    def of(self, *kinds: Kind) -> list[Commit]:
        """The commits of some kinds, in order. Raises LineageError."""
        found: list[Commit] = []
        for kind in kinds:
            found += self._trials() if kind is Kind.TRIALS else self._chain(kind)
        return sorted(found, key=lambda commit: commit.place)

    def newest_verdict(self) -> Evaluation | None:
        """The verdict that was given last, whichever trial it is on. Raises LineageError."""
        last = next((commit for commit in reversed(self.of(Kind.TRIALS)) if commit.judged), None)
        return evaluation(self._store, last) if last else None

    # -- inside ----------------------------------------------------------------------------------

    def _chain(self, kind: Kind) -> Iterator[Commit]:
        for name in reversed(self._store.history(f"{self._side}{kind.value}")):
            yield self._commit(kind, name)

    def _trials(self) -> Iterator[Commit]:
        """Of every branch the commits that are about its own trial: below them are those of its parents."""
        for ref, head in sorted(self._store.refs(self._heads).items()):
            trial, found, name = ref.rpartition("/")[2], [], head
            while (commit := self._commit(Kind.TRIALS, name)).trailer("Trial") == trial:
                found.append(commit)
                parents = self._store.header(name)[0]
                if not parents:
                    break
                name = parents[0]
            yield from reversed(found)

    def _commit(self, kind: Kind, name: str) -> Commit:
        _, date, said = self._store.told(name)
        text, step = commit_message.without_step(said)
        session, _, number = step.partition(".")
        return Commit((int(session), int(number)) if step else (0, 0), kind, name, date, text)


def evaluation(store: Store, commit: Commit) -> Evaluation:
    """The verdict that a commit holds. Raises LineageError."""
    found: Evaluation = schema.load("evaluation", store.read(f"{commit.name}:evaluation.json"), Evaluation)
    return found
