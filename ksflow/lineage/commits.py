"""A run's commits as they are made: a kernel's on its branch, all others on chains that grow by one commit at a time.

Each takes its step when it is made (see `commit_order`). Every commit that holds its ref's new place
is one step further.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ksflow.errors import LineageError
from ksflow.lineage import commit_message
from ksflow.lineage.commit_order import LiveOrder, ReplayedOrder
from ksflow.lineage.store import ZERO, Ref, Store
from ksflow.records import Trial, schema
from ksflow.redaction import redact

TRIES = 100
"""How often a ref is tried that other processes move too."""


class Commits:
    """Of one session at a time. `side`: where the chains are. `changed`: the caller has its lock."""

    def __init__(self, store: Store, side: str, steps: LiveOrder | ReplayedOrder, changed: threading.Condition) -> None:
        self._store, self._side, self._changed = store, side, changed
        self.steps = steps
        self.session = 0
        """The number of the session that is open; 0 before the first, whose commits have no steps."""
        self.closed = False
        self._recent: dict[bytes, str] = {}
        self._empty = ""

    def begin(self, session: int, steps: LiveOrder | ReplayedOrder) -> None:
        """From now on commits are this session's."""
        self.session, self.steps = session, steps

    def stepped(self) -> None:
        """A commit that was made has its ref."""
        self.steps.done += 1
        self._changed.notify_all()

    def trial(self, trial: Trial, parents: Sequence[str], label: str, kept: Mapping[str, str] | None = None) -> str:
        """A commit with a trial's files, on no branch yet; its id. `kept`: blobs of other files, by their names."""
        texts = trial.kernel.files if trial.kernel else {}
        entries = {name: self._blob(text.encode()) for name, text in texts.items()}
        kernel = replace(trial.kernel, files=dict(entries)) if trial.kernel else None
        entries |= kept or {}
        trial = replace(trial, failure=redact(trial.failure))
        stored = replace(trial, kernel=kernel, evaluation=None, stale="")
        entries["trial.json"] = self._blob(schema.dump("trial", stored))
        if trial.evaluation:
            entries["evaluation.json"] = self._store.blob(schema.dump("evaluation", trial.evaluation))
        tree = self._tree(entries)
        text, date = self._step(tree, commit_message.describe(trial, label))
        return self._store.commit(tree, parents, text, date)

    def annotation(self, head: str, name: str, data: bytes, text: str) -> str:
        """A commit on top of a branch's newest, with one file more or another text in it; its id."""
        tree = self._tree({**self._store.entries(head), name: self._store.blob(data)})
        stepped, date = self._step(tree, text)
        return self._store.commit(tree, (head,), stepped, date)

    def append(
        self,
        chain: str,
        files: Mapping[str, bytes],
        text: str,
        opened: Sequence[tuple[str, str]] = (),
        verified: Sequence[Ref] = (),
        after: str = "",
    ) -> bool:
        """Grow a chain by one commit; `opened` refs are created on it. False when an opened ref was taken.

        after: the chain's end that the files were made from (`ZERO` for none); False where it has another one by now.
        """
        tree = self._tree({name: self._store.blob(data) for name, data in files.items()})
        ref = f"{self._side}{chain}"
        for _ in range(TRIES):
            stepped, date = self._step(tree, text)
            head = after or self._store.ref(ref) or ZERO
            commit = self._store.commit(tree, [head] if head != ZERO else [], stepped, date)
            created = [(name, commit, old) for name, old in opened]
            if self._store.move([(ref, commit, head), *created, *verified]):
                self.stepped()
                return True
            if after or (opened and (self._store.ref(ref) or ZERO) == head):
                return False
        raise LineageError(f"{self._store.path}: {ref} could not be moved in {TRIES} tries")

    def _step(self, tree: str, text: str) -> tuple[str, int]:
        """The message and the date of the next commit, which `stepped` follows. In a replay, once it is its turn."""
        if self.closed:
            raise LineageError(f"{self._store.path} is closed")
        text = redact(text)
        number, date = self.steps.next_step(tree, text, self._changed)
        return (commit_message.with_step(text, f"{self.session}.{number}") if self.session else text), date

    def _blob(self, data: bytes) -> str:
        """A file's blob; written once, though a kernel's first two commits both hold it."""
        if data not in self._recent:
            self._recent = {**dict(list(self._recent.items())[-8:]), data: self._store.blob(data)}
        return self._recent[data]

    def _tree(self, entries: Mapping[str, str]) -> str:
        if not entries and not self._empty:
            self._empty = self._store.tree({})
        return self._store.tree(entries) if entries else self._empty
