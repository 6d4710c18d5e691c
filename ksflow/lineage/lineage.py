"""git <-> Trial: every kernel ever tried is a branch, and its parents are the kernels it came from.

    refs/heads/<problem>/<run>/<id>          a kernel: written -> evaluated -> confirmed; only ever grows
    refs/tags/approved/<problem>/<run>/<id>  a person's last word on it (see `approval`)
    refs/ksflow/<problem>/<run>/open/<id>    an id given to an experiment that has no kernel yet
    refs/ksflow/<problem>/<run>/sessions     one commit for each call of the run: the configuration it was made with
    refs/ksflow/<problem>/<run>/rounds       rounds, selections and plans, before anything acts on them
    refs/ksflow/<problem>/<run>/calls        every model call; .../notes  what was learnt
    refs/ksflow/<problem>/<run>/verdicts     what the judge said when it was asked about a kernel again

Git is the only state. A run that is killed at any moment leaves whole commits: an open id is written next time, a
written kernel is evaluated next time, and nothing is done twice. A verdict holds for one key (problem, judge, target):
of a branch that two machines have judged, each sees its own newest verdict; a trial without one is stale. Any number of
threads may use it. What it does not do: judge, rank or display.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from ksflow import forms, schema
from ksflow.errors import BudgetError, ConfigError, LineageError, counted
from ksflow.lineage import message
from ksflow.lineage.branches import Branches
from ksflow.lineage.steps import Live, Replayed
from ksflow.lineage.store import ZERO, Ref, Store
from ksflow.notes import lessons
from ksflow.records import RESERVED_NAMES, Call, Choice, Evaluation, Key, Note, Origin, Plan, Population, Trial

P = ParamSpec("P")
T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,150}")
_TRIES = 100


Recorded = tuple[Live | Replayed, str, bytes]
"""Of a session on record: its steps, its settings, and as JSON the notes that it was made with (b"" for none)."""


class Turn(NamedTuple):
    """A round that has begun."""

    name: str
    """`<session>.<number>`"""
    known: Population
    """Every finished trial when it began."""
    notes: tuple[Note, ...]
    """What was learnt until then."""
    sample: int = 0
    """How many rounds had begun before it with the same knowledge: models are to answer each of them differently."""


def _alone(method: Callable[Concatenate["Lineage", P], T]) -> Callable[Concatenate["Lineage", P], T]:
    """One thread at a time."""

    def guarded(self: "Lineage", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._changed:
            return method(self, *args, **kwargs)

    return update_wrapper(guarded, method)


class Lineage:
    """One run of one problem in one repository. `clock` gives the commits' dates (seconds since 1970)."""

    def __init__(
        self,
        path: str | Path,
        problem: str,
        run: str = "main",
        clock: Callable[[], float] = time.time,
        create: bool = True,
    ) -> None:
        for kind, name in (("problem", problem), ("run", run)):
            if not _NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
                raise ConfigError(f"{kind}={name!r} cannot name a git branch; use letters, digits, - and _")
        self.problem, self.run = problem, run
        self.store = Store(Path(path), create)
        self._steps: Live | Replayed = Live(clock)
        self._session = 0
        self._begun: Counter[int] = Counter()
        self._rounds = 0
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._heads = f"refs/heads/{problem}/{run}/"
        self._side = f"refs/ksflow/{problem}/{run}/"
        self._branches = Branches(self.store, self._heads.removeprefix("refs/heads/"))
        self._trials: dict[str, Trial] = {}
        self._same: dict[str, list[str]] = {}
        self._at: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._known: Population | None = None
        self._recent: dict[bytes, str] = {}
        self._notes: tuple[str, tuple[Note, ...]] = ("", ())
        self.handbook: tuple[Note, ...] = ()
        """Notes that the session was made with."""
        self._empty = ""

    # -- reading ---------------------------------------------------------------------------------

    @_alone
    def expect(self, key: Key) -> None:
        """From now on a verdict under another key is stale. Without this every verdict holds."""
        self._branches.key, self._known = key, None
        self._trials.clear()
        self._at.clear()

    @_alone
    def population(self) -> Population:
        """Every finished trial, other processes' and pushed ones included."""
        self._refresh()
        return self.known

    @property
    def known(self) -> Population:
        """The population as last read, with what this process wrote since. Does not wait for whoever is writing."""
        return self._known or self._ranked()

    @_alone
    def _ranked(self) -> Population:
        if self._known is None:
            trials = [self._trials[name] for name in sorted(self._trials)]
            finished = (t for t in trials if not t.stale and _finished(t))
            self._known = Population(tuple(finished), tuple(t for t in trials if t.stale))
        return self._known

    @_alone
    def everything(self) -> tuple[Trial, ...]:
        """Every trial that has a branch, finished or not, as it stands now."""
        self._refresh()
        return tuple(self._trials[name] for name in sorted(self._trials))

    @_alone
    def unfinished(self, *origins: Origin) -> tuple[Trial, ...]:
        """What an earlier or a killed run left undone, claimed for this one: to be written, or to be evaluated.

        Of some origins, or of any.
        """
        others = [
            name
            for name, trial in self._undone().items()
            if not self.store.holds(self._claim(name)) and (not origins or trial.origin in origins)
        ]
        mine = [name for name in others if self.store.claim(self._claim(name))]
        undone = self._undone() if mine else {}  # again: it may have been finished before the claim
        for name in mine:
            if name not in undone:
                self.store.release(self._claim(name))
        return tuple(undone[name] for name in mine if name in undone)

    @_alone
    def again(self, trials: Iterable[Trial]) -> tuple[Trial, ...]:
        """Those that no other process is at work on, claimed and without their verdicts: to be judged once more."""
        return tuple(replace(t, evaluation=None, stale="") for t in trials if self.store.claim(self._claim(t.id)))

    @_alone
    def busy(self) -> bool:
        """Whether another process is at work on a trial of this run."""
        return bool(self._undone()) or any(self._taken(trial.id) for trial in self.known.stale)

    @_alone
    def same(self, trial: Trial) -> tuple[str, ...]:
        """The trials of the same form that were written before this one."""
        names = self._same.get(trial.form, [])
        return tuple(names[: names.index(trial.id)] if trial.id in names else names)

    def settled(self, trial: str) -> Trial | None:
        """A trial once this process has done with it; None where it is unfinished then."""
        with self._changed:
            while trial in self._trials and not _finished(self._trials[trial]):
                if not self.store.holds(self._claim(trial)):
                    return None
                self._changed.wait()
            return self._trials.get(trial)

    def commit_of(self, trial: str) -> str:
        """The newest commit of a trial's branch."""
        return self._at[trial]

    @_alone
    def at(self, trial: str, commit: str) -> Trial:
        """A trial as one commit of its branch has it, whatever its verdict holds for. Raises LineageError."""
        return self._branches.load(trial, commit)

    def branch_of(self, trial: str) -> str:
        """The branch's short name."""
        return f"{self.problem}/{self.run}/{trial}"

    @_alone
    def diff(self, first: str, second: str) -> str:
        """How the kernel's files changed from one trial to another."""
        return self.store.diff(self._at[first], self._at[second], RESERVED_NAMES)

    @property
    def prefixes(self) -> tuple[str, str]:
        """Where the run's refs are."""
        return self._heads, self._side

    @_alone
    def runs(self) -> str:
        """The runs of every problem in this repository, as text."""
        names = {name.rpartition("/")[0][len("refs/heads/") :] for name in self.store.refs("refs/heads/")}
        return ", ".join(sorted(names)) or "none"

    @_alone
    def notes(self) -> tuple[Note, ...]:
        """What was learnt so far."""
        head = self.store.ref(f"{self._side}notes")
        if head is None:
            return ()
        if head != self._notes[0]:
            self._notes = head, schema.load("notes", self.store.read(f"{head}:notes.json"), tuple)
        return self._notes[1]

    @property
    @_alone
    def settings(self) -> str:
        """What the newest session was made with; empty where there was none."""
        head = self.store.ref(f"{self._side}sessions")
        return self.store.read(f"{head}:session.yaml").decode() if head else ""

    @property
    @_alone
    def digested(self) -> int:
        """From how many trials the notes were learnt."""
        head = self.store.ref(f"{self._side}notes")
        return int(self.store.trailer(head, "Trials") or 0) if head else 0

    # -- writing ---------------------------------------------------------------------------------

    @_alone
    def plant(self, seeds: Iterable[Trial]) -> tuple[Trial, ...]:
        """Commit kernels that come from outside (each with no id yet); those with their ids, claimed."""
        planted = []
        for seed in seeds:
            for _ in range(_TRIES):
                trial = replace(seed, id=self._free(1)[0], form=forms.form(seed.kernel) if seed.kernel else "")
                if self._written(trial, ()):
                    planted.append(trial)
                    break
                self.store.release(self._claim(trial.id))
                self._refresh()
        return tuple(planted)

    @_alone
    def session(
        self, settings: str, handbook: tuple[Note, ...] = (), again: Callable[[int], Recorded] | None = None
    ) -> Replayed | None:
        """Open a session with the settings and the notes it is made with; `again` gives those of a recorded one.

        Returns the steps where they are the recorded ones. The notes are `handbook` from then on.
        """
        while not self.store.claim(self._claim("sessions")):
            time.sleep(0.05)
        head = self.store.ref(f"{self._side}sessions")
        self._session, self._rounds = int(self.store.trailer(head, "Session")) + 1 if head else 1, 0
        data = schema.dump("notes", handbook) if handbook else b""
        if again:
            self._steps, settings, data = again(self._session)
        self.handbook = schema.load("notes", data, tuple) if data else handbook
        number = str(self._session)
        text = message.plain(f"session {number}", "", {"Session": number})
        files = {"session.yaml": settings.encode(), **({"handbook.json": data} if data else {})}
        self._append("sessions", files, text)
        self.store.release(self._claim("sessions"))
        return self._steps if isinstance(self._steps, Replayed) else None

    @_alone
    def begin(self) -> Turn:
        """Begin a round: what it knows is what is known now. BudgetError where a recording has no more of them."""
        if self._rounds >= self._steps.rounds:
            raise BudgetError(f"the recording has {self._rounds} rounds")
        self._rounds += 1
        name = f"{self._session}.{self._rounds}"
        self._append("rounds", {}, message.plain(f"round {name}", "", {"Round": name}))
        known = self.known
        self._begun[len(known.trials)] += 1
        notes = lessons.held(self.notes(), known, self._at, self.at)
        return Turn(name, known, notes, self._begun[len(known.trials)] - 1)

    @_alone
    def select(self, choice: Choice, turn: str = "") -> None:
        """Keep a selection, before it is acted on."""
        picks = {"Base": choice.base.id, "Reference": choice.reference.id, "Round": turn}
        subject = f"select {choice.base.id} with {choice.reference.id}"
        self._append("rounds", {}, message.plain(subject, choice.rationale, picks))

    @_alone
    def dispatch(
        self, drafts: Sequence[Trial], plan: Plan | None = None, cause: str = "", room: Callable[[int], int] = int
    ) -> tuple[Trial, ...]:
        """Give ids to experiments and keep the plan they come from, in one transaction; they are claimed.

        `cause`: the round's name, or the trial that is repaired. `room`: how many of so many may be taken.
        """
        files = {"plan.json": schema.dump("plan", plan)} if plan else {}
        body = "\n".join(plan.avenues) if plan else ""
        given = self._steps.ids(cause)
        count = room(len(drafts) if given is None else min(len(given), len(drafts)))
        for _ in range(_TRIES if count else 0):
            ids = self._free(count) if given is None else self._claimed(given[:count])
            trials = tuple(replace(draft, id=name) for draft, name in zip(drafts, ids, strict=False))
            files["trials.json"] = schema.dump("trials", trials)
            opened = [(f"{self._side}open/{name}", ZERO) for name in ids]
            unused = [(f"{self._heads}{name}", "", ZERO) for name in ids]
            text = message.plain(f"{'plan' if plan else 'repair as'} {', '.join(ids)}", body, {"Cause": cause})
            if self._append("rounds", files, text, opened, unused):
                self._open |= dict.fromkeys(ids, "")
                return trials
            for name in ids:
                self.store.release(self._claim(name))
            self._refresh()
        if not count:
            return ()
        raise LineageError(f"{self.store.path}: no id could be taken in {_TRIES} tries")

    @_alone
    def write(self, trial: Trial) -> None:
        """Commit a dispatched trial's kernel, or the reason there is none."""
        opened = f"{self._side}open/{trial.id}"
        source = self.store.ref(opened)
        closing = [(opened, ZERO, source)] if source else []
        if not self._written(trial, closing):
            raise LineageError(f"{self.branch_of(trial.id)} was written by somebody else; run again")
        if trial.failure:
            self._settle(trial.id)

    @_alone
    def evaluate(self, trial: Trial, label: str = "evaluated") -> None:
        """Commit a verdict on top of the kernel it judges."""
        assert trial.evaluation is not None
        head = self._at[trial.id]
        commit = self._commit(trial, (head,), label)
        if self.store.move([(f"{self._heads}{trial.id}", commit, head)]):
            self._stepped()
            self._keep(trial, commit)
        self._settle(trial.id)
        self.store.maintain()

    @_alone
    def heard(self, trial: Trial, evaluation: Evaluation) -> None:
        """Keep what the judge said when it was asked about a kernel again, before it is acted on."""
        text = message.plain(f"{trial.id} again: {evaluation.verdict.value}", evaluation.reason, {"Trial": trial.id})
        self._append("verdicts", {"evaluation.json": schema.dump("evaluation", evaluation)}, text)

    @_alone
    def learn(self, notes: tuple[Note, ...], trials: int = 0) -> tuple[Note, ...]:
        """Keep the notes that hold from now on, learnt from so many trials; as they are kept.

        New ones cite their trials at the commits that are the newest now; old ones that were contradicted are refuted.
        """
        before = self.notes()
        after = lessons.held(before, self.known, self._at, self.at)
        old = {**dict(zip(before, after, strict=True)), **{note: note for note in after}}
        notes = tuple(old.get(note) or lessons.cited(note, self._at, before) for note in notes)
        text = "\n\n".join(f"## {note.title}\n\n{note.text}" for note in notes)
        files = {"notes.json": schema.dump("notes", notes), "notes.md": text.encode()}
        self._append("notes", files, message.plain(counted(len(notes), "note"), "", {"Trials": str(trials)}))
        return notes

    @_alone
    def leave(self, trial: Trial) -> None:
        """Have nothing more to do with a trial, finished or not."""
        self._settle(trial.id)

    @_alone
    def let_go(self) -> None:
        """Give every claim back: whoever comes next may take up what is unfinished."""
        self.store.release_all()

    @_alone
    def record(self, call: Call) -> None:
        """Keep a model call, before its answer is used."""
        body = call.error or call.answer[:200]
        text = message.plain(f"{call.stage}: {call.model}", body, {"Cost-usd": f"{call.cost.usd:.6f}"})
        self._append("calls", {"call.json": schema.dump("call", call)}, text)

    @_alone
    def close(self) -> None:
        """Pack, and end git's helper processes."""
        self._closed = True
        with suppress(LineageError):  # packing is a comfort; whatever is wrong was said by the read that met it
            self.store.maintain(force=True)
        self.store.close()

    # -- inside ----------------------------------------------------------------------------------

    def _refresh(self) -> None:
        refs = self.store.refs(self._heads, f"{self._side}open/")
        cut = len(self._heads)
        heads = {ref[cut:]: commit for ref, commit in refs.items() if ref.startswith(self._heads)}
        self._open = {ref.rpartition("/")[2]: commit for ref, commit in refs.items() if not ref.startswith(self._heads)}
        for name in self._at.keys() - heads.keys():
            del self._trials[name], self._at[name]
            self._known = None
        for name, commit in heads.items():
            if self._at.get(name) != commit:
                self._keep(self._branches.holding(self._branches.load(name, commit), commit), commit)

    def _undone(self) -> dict[str, Trial]:
        self._refresh()
        undone: dict[str, Trial] = {}
        for name, commit in self._open.items():
            data = self.store.read(f"{commit}:trials.json")
            trials: tuple[Trial, ...] = schema.load("trials", data, tuple)
            undone |= {trial.id: trial for trial in trials if trial.id == name}
        written = {name: t for name, t in self._trials.items() if not _finished(t)}
        return undone | written

    def _free(self, count: int) -> list[str]:
        """The next ids nobody is known to have or to be working on, claimed."""
        used = [int(name) for name in (*self._at, *self._open) if name.isdigit()]
        top, free = max(used, default=0), list[str]()
        while len(free) < count:
            top += 1
            claim = self._claim(f"{top:05d}")
            if not self.store.holds(claim) and self.store.claim(claim):
                free.append(f"{top:05d}")
        return free

    def _claimed(self, ids: Sequence[str]) -> Sequence[str]:
        if not all(self.store.claim(self._claim(name)) for name in ids):
            raise LineageError(f"{self.store.path}: another process replays run {self.run}; name another with run=")
        return ids

    def _taken(self, trial: str) -> bool:
        """Whether another process has the claim."""
        free = self.store.claim(self._claim(trial))
        self.store.release(self._claim(trial))
        return not free

    def _claim(self, trial: str) -> str:
        return f"{self.problem}/{self.run}/{trial}"

    def _settle(self, trial: str) -> None:
        """This process has done with it."""
        self.store.release(self._claim(trial))
        self._changed.notify_all()

    def _keep(self, trial: Trial, commit: str) -> None:
        before = self._trials.get(trial.id)
        if trial.stale or (before and (before.stale or _finished(before))):
            self._known = None
        elif self._known and _finished(trial):
            self._known = self._known.plus(trial)
        if trial.form and before is None:
            self._same.setdefault(trial.form, []).append(trial.id)
        self._trials[trial.id], self._at[trial.id] = trial, commit

    def _written(self, trial: Trial, closing: Sequence[Ref]) -> bool:
        parents = [self._at[name] for name in dict.fromkeys(trial.parents) if name in self._at]
        commit = self._commit(trial, parents, "written")
        done = self.store.move([(f"{self._heads}{trial.id}", commit, ZERO), *closing])
        if done:
            self._stepped()
            self._keep(trial, commit)
            self._open.pop(trial.id, None)
        return done

    def _commit(self, trial: Trial, parents: Sequence[str], label: str) -> str:
        texts = trial.kernel.files if trial.kernel else {}
        entries = {name: self._blob(text.encode()) for name, text in texts.items()}
        kernel = replace(trial.kernel, files=dict(entries)) if trial.kernel else None
        stored = replace(trial, kernel=kernel, evaluation=None, stale="")
        entries["trial.json"] = self._blob(schema.dump("trial", stored))
        if trial.evaluation:
            entries["evaluation.json"] = self.store.blob(schema.dump("evaluation", trial.evaluation))
        tree = self._tree(entries)
        text, date = self._step(tree, message.describe(trial, label))
        return self.store.commit(tree, parents, text, date)

    def _step(self, tree: str, text: str) -> tuple[str, int]:
        """The message and the date of the next commit, which `_stepped` follows. In a replay, once it is its turn."""
        if self._closed:
            raise LineageError(f"{self.store.path} is closed")
        number, date = self._steps.turn(tree, text, self._changed)
        return (message.with_step(text, f"{self._session}.{number}") if self._session else text), date

    def _stepped(self) -> None:
        self._steps.done += 1
        self._changed.notify_all()

    def _blob(self, data: bytes) -> str:
        """A file's blob; written once, though a kernel's first two commits both hold it."""
        if data not in self._recent:
            self._recent = {**dict(list(self._recent.items())[-8:]), data: self.store.blob(data)}
        return self._recent[data]

    def _tree(self, entries: Mapping[str, str]) -> str:
        if not entries and not self._empty:
            self._empty = self.store.tree({})
        return self.store.tree(entries) if entries else self._empty

    def _append(
        self,
        chain: str,
        files: Mapping[str, bytes],
        text: str,
        opened: Sequence[tuple[str, str]] = (),
        verified: Sequence[Ref] = (),
    ) -> bool:
        """Grow a chain by one commit; `opened` refs are created on it. False when an opened ref was taken."""
        tree = self._tree({name: self.store.blob(data) for name, data in files.items()})
        ref = f"{self._side}{chain}"
        for _ in range(_TRIES):
            stepped, date = self._step(tree, text)
            head = self.store.ref(ref)
            commit = self.store.commit(tree, [head] if head else [], stepped, date)
            created = [(name, commit, old) for name, old in opened]
            if self.store.move([(ref, commit, head or ZERO), *created, *verified]):
                self._stepped()
                return True
            if opened and self.store.ref(ref) == head:
                return False
        raise LineageError(f"{self.store.path}: {ref} could not be moved in {_TRIES} tries")


def _finished(trial: Trial) -> bool:
    return trial.evaluation is not None or bool(trial.failure)
