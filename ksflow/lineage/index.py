"""What a process has read of a run: every branch once, and again only when it has grown; what its rounds decided.

Which refs have changed since they were last looked at costs as much as has changed, not as much as there is. Git keeps
a ref in a file of its own until `pack-refs` moves many into one, `packed-refs`; files that have not changed are not
read again. Where git keeps refs otherwise (reftable) it is asked for all of them each time.
"""

import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice, takewhile

from ksflow.errors import LineageError
from ksflow.lineage.record import Branches, plan_of, step_of
from ksflow.lineage.refs import ZERO, Mark, PackedRefs
from ksflow.lineage.store import Store
from ksflow.records import Key, Plan, PlannedRound, Population, RoundStep, Trial, by_number, schema

_AT_ONCE = 256  # branches whose files are in memory at the same time, beside what is kept of them
_PLANS = 60  # so many rounds' plans are in memory
_ROUND_COMMITS = 4  # of a round: that it began, what it selected and planned, a repair
_LOG = logging.getLogger("ksflow.lineage")
_RACY_NS = 50_000_000  # a file that is younger may change once more without its time telling
_LOOK_S = 1.0  # how old a look at the refs may be for a question that allows an old one


class Decisions:
    """Takes the steps of a run's rounds in their order; `plans` is what the newest rounds decided."""

    def __init__(self) -> None:
        self.plans: tuple[PlannedRound, ...] = ()
        self._chosen: dict[str, RoundStep] = {}  # a round without a plan -> its selection

    def take(self, step: RoundStep, plan: Plan | None) -> None:
        """Take in the next step, with its plan where it has one."""
        if step.base:
            self._chosen[step.cause] = step
        elif plan and (chosen := self._chosen.pop(step.cause, None)):
            planned = PlannedRound(chosen.base, chosen.reference, chosen.rationale, plan, step.ids)
            self.plans = (*self.plans, planned)[-_PLANS:]


class RunIndex:
    """The trials whose branches begin with `heads`; below `side` the ids given out, and the rounds.

    Not for two threads at once, except to read `known`.
    """

    def __init__(self, store: Store, heads: str, side: str) -> None:
        self._store, self._heads, self._opened, self._rounds = store, heads, f"{side}open/", f"{side}rounds"
        self._refs = Refs(store, heads, self._opened)
        self._rounds_read = ZERO  # the newest commit of the rounds that was read
        self._decisions = Decisions()
        self.newest = ""  # the highest number that is a trial's id
        self._unfinished: dict[str, Trial] = {}
        self._again: dict[str, str] = {}
        """Trial -> the newest commit of its branch, of those that are to be read under another key."""
        self.branches = Branches(store, heads.removeprefix("refs/heads/"))
        self.trials: dict[str, Trial] = {}
        self.at: dict[str, str] = {}
        """Trial -> the commit of its newest verdict, or of its kernel: what others are made from and cite."""
        self.tips: dict[str, str] = {}
        """Trial -> the newest commit of its branch: the same one, or an annotation on top of it."""
        self.same: dict[str, tuple[str, ...]] = {}
        """A kernel's form -> the trials of that form, in the order in which they were written."""
        self.open: dict[str, str] = {}  # an id that has no branch yet -> the commit with its experiment
        self.known: Population | None = None
        """The finished trials; None when they are to be ranked anew."""
        self.approved: frozenset[str] = frozenset()  # trials that a person had approved when the key was set
        self.unread: dict[str, str] = {}
        """A branch that is no trial, or an id without a readable experiment -> the commit that was found so."""
        self._looked = -math.inf  # the `time.monotonic()` of the last look at the refs

    def expect(self, key: Key) -> None:
        """From now on a verdict under another key is stale. What that changes is forgotten, to be read again."""
        self.branches.key, self.known = key, None
        for name, trial in list(self.trials.items()):
            if trial.stale or (trial.evaluation and key.describe_changes(trial.evaluation)):
                self._again[name] = self.tips[name]
                self._forget(name)

    def refresh(self) -> None:
        """Read what is new, other processes' trials and pushed ones included."""
        self._looked = time.monotonic()
        cut = len(self._heads)
        new, self._again = self._again, {}
        for ref, commit in self._refs.changes().items():
            name = ref[cut:]
            if not ref.startswith(self._heads):
                self.open.pop(name := ref.rpartition("/")[2], "")
                self.open |= {name: commit} if commit else {}
            elif not commit:
                self.unread.pop(name, "")
                new.pop(name, "")
                self._forget(name)
            elif commit not in (self.tips.get(name), self.unread.get(name)):
                new[name] = commit
        names = sorted(new, key=by_number)
        for at in range(0, len(names), _AT_ONCE):
            self._read_together({name: new[name] for name in names[at : at + _AT_ONCE]})

    def _read_together(self, heads: Mapping[str, str]) -> None:
        """Keep the trials of some branches, whose files are asked for in one go."""
        with self._store.read_ahead([f"{commit}^{{tree}}" for commit in heads.values()]):
            blobs: set[str] = set()
            for commit in heads.values():
                with suppress(LineageError):
                    blobs.update(self._store.entries(commit).values())
            with self._store.read_ahead(sorted(blobs)):
                for name, commit in heads.items():
                    self._read(name, commit)

    def _forget(self, name: str) -> None:
        if name in self.at:
            self._forget_form(self.trials[name])
            del self.trials[name], self.at[name], self.tips[name]
            self._unfinished.pop(name, None)
            self.known = None

    def _forget_form(self, trial: Trial) -> None:
        if trial.form:
            self.same[trial.form] = tuple(name for name in self.same[trial.form] if name != trial.id)

    def _read(self, name: str, commit: str) -> None:
        """Keep the trial of a branch; one that cannot be read is passed over, which is logged once."""
        try:
            trial = self.branches.holding(self.branches.load(name, commit), commit)
        except LineageError as error:
            self._pass_over(name, commit, f"passed over: {error}")
            self._forget(name)  # what it was before is no longer what it is
            return
        self.unread.pop(name, None)
        self.keep(trial, self.branches.judged_commit(commit) if commit in self.branches.explained else commit)
        self.tips[name] = commit

    def _pass_over(self, name: str, commit: str, why: str) -> None:
        if self.unread.get(name) != commit:
            self.unread[name] = commit
            _LOG.warning("%s", why)

    def keep(self, trial: Trial, commit: str) -> None:
        """A trial as it stands from now on, at the end of its branch."""
        before = self.trials.get(trial.id)
        if trial.stale or (before and (before.stale or is_finished(before))):
            self.known = None
        elif self.known and is_finished(trial):
            self.known = self.known.with_trial(trial)
        if before and before.form != trial.form:  # other code was pushed
            self._forget_form(before)
        if trial.form and trial.id not in (alike := self.same.get(trial.form, ())):
            self.same[trial.form] = (*alike, trial.id)
        self.trials[trial.id], self.at[trial.id], self.tips[trial.id] = trial, commit, commit
        self._unfinished.pop(trial.id, None)
        if not is_finished(trial):
            self._unfinished[trial.id] = trial
        if trial.id.isdecimal():
            self.newest = max(self.newest, trial.id, key=by_number)

    def all_trials(self) -> tuple[Trial, ...]:
        """Every trial that has a branch, by its id."""
        return tuple(self.trials[name] for name in sorted(self.trials, key=by_number))

    def population(self) -> Population:
        """The finished trials, and the stale ones."""
        if self.known is None:
            trials = self.all_trials()
            done = (trial for trial in trials if not trial.stale and is_finished(trial))
            stale = tuple(trial for trial in trials if trial.stale)
            self.known = Population(tuple(done), stale, plans=self._decisions.plans, approved=self.approved)
        return self.known

    def read_rounds(self) -> None:
        """Take in what was selected and planned since it was last looked at, as far back as plans are kept."""
        head = self._store.ref(self._rounds) or ""
        newest = islice(self._store.line(head), _ROUND_COMMITS * _PLANS)
        new = [*takewhile(lambda name: name != self._rounds_read, newest)]
        self._rounds_read = head or ZERO
        for commit in reversed(new):
            try:
                if step := step_of(self._store, commit):
                    self._take_step(step, plan_of(self._store, commit, step))
            except LineageError as error:
                _LOG.warning("a plan is left out: %s", error)

    def grow_rounds(self, before: str, commit: str, step: RoundStep, plan: Plan | None) -> None:
        """Take in a commit that this process has put on top of another; what others put below it meanwhile, too."""
        if before != self._rounds_read:
            return self.read_rounds()
        self._rounds_read = commit
        return self._take_step(step, plan)

    def _take_step(self, step: RoundStep, plan: Plan | None) -> None:
        self._decisions.take(step, plan)
        if self.known and self.known.plans is not self._decisions.plans:
            self.known = self.known.with_plans(self._decisions.plans)

    def unfinished_trials(self, lately: bool = False) -> dict[str, Trial]:
        """What is to be written or to be evaluated, as it stands now; `lately`: or as it stood a second ago."""
        if not lately or self._again or time.monotonic() - self._looked > _LOOK_S:
            self.refresh()
        undone: dict[str, Trial] = {}
        for name, commit in self.open.items():
            if name not in self.at and name not in self.unread:
                try:
                    trials: tuple[Trial, ...] = schema.load("trials", self._store.read(f"{commit}:trials.json"), tuple)
                    undone |= {trial.id: trial for trial in trials if trial.id == name}
                except LineageError as error:
                    self._pass_over(name, commit, f"{self._opened}{name} passed over, nobody will write it: {error}")
        return undone | self._unfinished


def is_finished(trial: Trial) -> bool:
    """Whether there is nothing left to do with it."""
    return trial.evaluation is not None or bool(trial.failure)


class Refs:
    """The refs below some prefixes, which end in a slash, and which of them have changed."""

    def __init__(self, store: Store, *prefixes: str) -> None:
        self._store, self._prefixes = store, prefixes
        self._loose: dict[str, tuple[Mark, str]] = {}
        self._packed: Mapping[str, str] = {}
        self._rows = PackedRefs(store.path, *prefixes)

    def changes(self) -> dict[str, str]:
        """Ref -> its commit, where that may be another one than last time; an empty text where it is gone."""
        before, packed_before = self._loose, self._packed
        loose = self._loose = dict(self._read_loose())  # first: a ref is packed, then its file goes
        reftable = (self._store.path / "reftable").exists()
        packed = self._packed = self._store.refs(*self._prefixes) if reftable else self._rows.read()
        names = {name for name, (_, commit) in loose.items() if before.get(name, (None, ""))[1] != commit}
        names |= before.keys() - loose.keys()
        if packed is not packed_before:
            names |= {name for name, _ in packed.items() ^ packed_before.items()}
        now = {name: loose[name][1] if name in loose else packed.get(name, "") for name in sorted(names)}
        return {name: commit for name, commit in now.items() if name not in before or before[name][1] != commit}

    def _read_loose(self) -> Iterator[tuple[str, tuple[Mark, str]]]:
        for prefix in self._prefixes:
            for name, entry in self._files(prefix.rstrip("/")):
                known = self._loose.get(name)
                try:
                    stat = entry.stat()
                    age = time.time_ns() - stat.st_mtime_ns
                    mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size) if age > _RACY_NS else None
                except FileNotFoundError:  # just packed
                    continue
                if mark and known and known[0] == mark:
                    yield name, known
                elif (commit := self._commit(name)) is not None:
                    yield name, (mark, commit)

    def _files(self, folder: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        try:
            with os.scandir(self._store.path / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if entry.is_dir():
                        yield from self._files(name)
                    elif not name.endswith(".lock"):
                        yield name, entry
        except (FileNotFoundError, NotADirectoryError):  # just packed
            return

    def _commit(self, name: str) -> str | None:
        """What a ref's own file says; None where there is none any more, or nothing that leads to a commit."""
        try:
            text = (self._store.path / name).read_text(errors="replace", encoding="utf-8").rstrip("\n")
        except (FileNotFoundError, IsADirectoryError):
            return None
        return text if re.fullmatch("[0-9a-f]{40}", text) else self._store.odd_ref(name)
