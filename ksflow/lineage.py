"""git <-> Trial: every kernel ever tried is a branch, and its parents are the kernels it came from.

    refs/heads/<problem>/<run>/<id>          a kernel: written -> evaluated -> confirmed; only ever grows
    refs/tags/approved/<problem>/<run>/<id>  a person's last word on it (see `approval`)
    refs/ksflow/<problem>/<run>/open/<id>    an id given to an experiment that has no kernel yet
    refs/ksflow/<problem>/<run>/rounds       selections and plans, one commit each, before anything acts on them
    refs/ksflow/<problem>/<run>/calls        every model call; .../notes  what was learnt

Git is the only state. A run that is killed at any moment leaves whole commits: an open id is written next time, a
written kernel is evaluated next time, and nothing is done twice. A verdict holds for one key (problem, judge, target):
of a branch that two machines have judged, each sees its own newest verdict; a trial without one is stale. What it does
not do: judge, rank or display.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ksflow import message, schema
from ksflow.errors import ConfigError, LineageError
from ksflow.records import (
    LANGUAGES,
    RESERVED_NAMES,
    Call,
    Choice,
    Evaluation,
    Kernel,
    Key,
    Note,
    Origin,
    Plan,
    Population,
    Trial,
)
from ksflow.store import ZERO, Ref, Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,150}")
_TRIES = 100


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
        self._clock = clock
        self._key: Key | None = None
        self._heads = f"refs/heads/{problem}/{run}/"
        self._side = f"refs/ksflow/{problem}/{run}/"
        self._trials: dict[str, Trial] = {}
        self._at: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._known: Population | None = None
        self._recent: dict[bytes, str] = {}
        self._empty = ""

    # -- reading ---------------------------------------------------------------------------------

    def expect(self, key: Key) -> None:
        """From now on a verdict under another key is stale. Without this every verdict holds."""
        self._key, self._known = key, None
        self._trials.clear()
        self._at.clear()

    def population(self) -> Population:
        """Every finished trial, other processes' and pushed ones included."""
        self._refresh()
        return self.known

    @property
    def known(self) -> Population:
        """The population as last read, with what this process wrote since."""
        if self._known is None:
            trials = [self._trials[name] for name in sorted(self._trials)]
            finished = (t for t in trials if not t.stale and (t.evaluation or t.failure))
            self._known = Population(tuple(finished), tuple(t for t in trials if t.stale))
        return self._known

    def everything(self) -> tuple[Trial, ...]:
        """Every trial that has a branch, finished or not, as it stands now."""
        self._refresh()
        return tuple(self._trials[name] for name in sorted(self._trials))

    def unfinished(self) -> tuple[Trial, ...]:
        """What an earlier or a killed run left undone, claimed for this one: to be written, or to be evaluated."""
        mine = [name for name in self._undone() if self.store.claim(self._claim(name))]
        undone = self._undone() if mine else {}  # again: it may have been finished before the claim
        for name in mine:
            if name not in undone:
                self.store.release(self._claim(name))
        return tuple(undone[name] for name in mine if name in undone)

    def again(self, trials: Iterable[Trial]) -> tuple[Trial, ...]:
        """Those that no other process is at work on, claimed and without their verdicts: to be judged once more."""
        return tuple(replace(t, evaluation=None, stale="") for t in trials if self.store.claim(self._claim(t.id)))

    def busy(self) -> bool:
        """Whether another process is at work on a trial of this run."""
        return bool(self._undone()) or any(self._taken(trial.id) for trial in self.known.stale)

    def commit_of(self, trial: str) -> str:
        """The newest commit of a trial's branch."""
        return self._at[trial]

    def at(self, trial: str, commit: str) -> Trial:
        """A trial as one commit of its branch has it, whatever its verdict holds for. Raises LineageError."""
        return self._load(trial, commit)

    def branch_of(self, trial: str) -> str:
        """The branch's short name."""
        return f"{self.problem}/{self.run}/{trial}"

    def diff(self, first: str, second: str) -> str:
        """How the kernel's files changed from one trial to another."""
        return self.store.diff(self._at[first], self._at[second], RESERVED_NAMES)

    def runs(self) -> str:
        """The runs of every problem in this repository, as text."""
        names = {name.rpartition("/")[0][len("refs/heads/") :] for name in self.store.refs("refs/heads/")}
        return ", ".join(sorted(names)) or "none"

    def notes(self) -> tuple[Note, ...]:
        """What was learnt so far."""
        head = self.store.ref(f"{self._side}notes")
        if head is None:
            return ()
        return schema.load("notes", self.store.read(f"{head}:notes.json"), tuple)

    # -- writing ---------------------------------------------------------------------------------

    def plant(self, seeds: Iterable[Trial]) -> tuple[Trial, ...]:
        """Commit kernels that come from outside (each with no id yet); those with their ids, claimed."""
        planted = []
        for seed in seeds:
            for _ in range(_TRIES):
                trial = replace(seed, id=self._free(1)[0])
                if self._written(trial, ()):
                    planted.append(trial)
                    break
                self.store.release(self._claim(trial.id))
                self._refresh()
        return tuple(planted)

    def select(self, choice: Choice) -> None:
        """Keep a selection, before it is acted on."""
        picks = {"Base": choice.base.id, "Reference": choice.reference.id}
        subject = f"select {choice.base.id} with {choice.reference.id}"
        self._append("rounds", {}, message.plain(subject, choice.rationale, picks))

    def dispatch(self, drafts: Sequence[Trial], plan: Plan | None = None) -> tuple[Trial, ...]:
        """Give ids to experiments and keep the plan they come from, in one transaction; they are claimed."""
        files = {"plan.json": schema.dump("plan", plan)} if plan else {}
        body = "\n".join(plan.avenues) if plan else ""
        for _ in range(_TRIES):
            ids = self._free(len(drafts))
            trials = tuple(replace(draft, id=name) for draft, name in zip(drafts, ids, strict=True))
            files["trials.json"] = schema.dump("trials", trials)
            opened = [(f"{self._side}open/{name}", ZERO) for name in ids]
            unused = [(f"{self._heads}{name}", "", ZERO) for name in ids]
            subject = f"plan {', '.join(ids)}"
            if self._append("rounds", files, message.plain(subject, body, {}), opened, unused):
                self._open |= dict.fromkeys(ids, "")
                return trials
            for name in ids:
                self.store.release(self._claim(name))
            self._refresh()
        raise LineageError(f"{self.store.path}: no id could be taken in {_TRIES} tries")

    def write(self, trial: Trial) -> None:
        """Commit a dispatched trial's kernel, or the reason there is none."""
        opened = f"{self._side}open/{trial.id}"
        source = self.store.ref(opened)
        closing = [(opened, ZERO, source)] if source else []
        if not self._written(trial, closing):
            raise LineageError(f"{self.branch_of(trial.id)} was written by somebody else; run again")
        if trial.failure:
            self.store.release(self._claim(trial.id))

    def evaluate(self, trial: Trial, label: str = "evaluated") -> None:
        """Commit a verdict on top of the kernel it judges."""
        assert trial.evaluation is not None
        head = self._at[trial.id]
        commit = self._commit(trial, (head,), label)
        if self.store.move([(f"{self._heads}{trial.id}", commit, head)]):
            self._keep(trial, commit)
        self.store.release(self._claim(trial.id))
        self.store.maintain()

    def learn(self, notes: tuple[Note, ...]) -> None:
        """Keep the notes that hold from now on."""
        text = "\n\n".join(f"## {note.title}\n\n{note.text}" for note in notes)
        files = {"notes.json": schema.dump("notes", notes), "notes.md": text.encode()}
        self._append("notes", files, message.plain(f"{len(notes)} notes", "", {}))

    def record(self, call: Call) -> None:
        """Keep a model call, before its answer is used."""
        body = call.error or call.answer[:200]
        text = message.plain(f"{call.stage}: {call.model}", body, {"Cost-usd": f"{call.cost.usd:.6f}"})
        self._append("calls", {"call.json": schema.dump("call", call)}, text)

    def close(self) -> None:
        """Pack, and end git's helper processes."""
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
                self._keep(self._holding(self._load(name, commit), commit), commit)

    def _undone(self) -> dict[str, Trial]:
        self._refresh()
        undone: dict[str, Trial] = {}
        for name, commit in self._open.items():
            data = self.store.read(f"{commit}:trials.json")
            trials: tuple[Trial, ...] = schema.load("trials", data, tuple)
            undone |= {trial.id: trial for trial in trials if trial.id == name}
        written = {name: t for name, t in self._trials.items() if not (t.evaluation or t.failure)}
        return undone | written

    def _free(self, count: int) -> list[str]:
        """The next ids nobody is known to have or to be working on, claimed."""
        used = [int(name) for name in (*self._at, *self._open) if name.isdigit()]
        top, free = max(used, default=0), list[str]()
        while len(free) < count:
            top += 1
            if self.store.claim(self._claim(f"{top:05d}")):
                free.append(f"{top:05d}")
        return free

    def _taken(self, trial: str) -> bool:
        """Whether another process has the claim."""
        free = self.store.claim(self._claim(trial))
        self.store.release(self._claim(trial))
        return not free

    def _claim(self, trial: str) -> str:
        return f"{self.problem}/{self.run}/{trial}"

    def _keep(self, trial: Trial, commit: str) -> None:
        known, before = self._known, self._trials.get(trial.id)
        finished = trial.evaluation is not None or bool(trial.failure)
        in_order = not (known and known.trials) or trial.id > known.trials[-1].id
        if trial.stale or (before and before.stale) or not in_order:
            self._known = None
        elif known and finished:
            self._known = known.plus(trial)
        self._trials[trial.id], self._at[trial.id] = trial, commit

    def _written(self, trial: Trial, closing: Sequence[Ref]) -> bool:
        parents = [self._at[name] for name in dict.fromkeys(trial.parents) if name in self._at]
        commit = self._commit(trial, parents, "written")
        done = self.store.move([(f"{self._heads}{trial.id}", commit, ZERO), *closing])
        if done:
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
        return self.store.commit(self._tree(entries), parents, message.describe(trial, label), int(self._clock()))

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
            head = self.store.ref(ref)
            commit = self.store.commit(tree, [head] if head else [], text, int(self._clock()))
            created = [(name, commit, old) for name, old in opened]
            if self.store.move([(ref, commit, head or ZERO), *created, *verified]):
                return True
            if opened and self.store.ref(ref) == head:
                return False
        raise LineageError(f"{self.store.path}: {ref} could not be moved in {_TRIES} tries")

    def _holding(self, trial: Trial, commit: str) -> Trial:
        """The trial with its newest verdict that holds under the key; where none does its last one, as stale."""
        if self._key is None or trial.evaluation is None:
            return trial
        changed = self._key.changed(trial.evaluation)
        earlier = self._earlier(trial, commit, self._key) if changed else None
        return replace(trial, evaluation=earlier or trial.evaluation, stale="" if earlier else changed)

    def _earlier(self, trial: Trial, commit: str, key: Key) -> Evaluation | None:
        """The newest verdict under `key` below a commit, as long as the branch is about the same kernel."""
        while parents := self.store.header(commit)[0]:
            commit = parents[0]
            if self.store.trailer(commit, "Trial") != trial.id:
                return None
            found = self._load(trial.id, commit)
            if not found.evaluation or not found.kernel or found.kernel.files != (trial.kernel or found.kernel).files:
                return None
            if not key.changed(found.evaluation):
                return found.evaluation
        return None

    def _load(self, name: str, commit: str) -> Trial:
        try:
            return self._parse(name, commit)
        except (LineageError, ValueError) as error:
            raise LineageError(
                f"branch {self.branch_of(name)} of {self.store.path} cannot be read: {error}; "
                f"remove it with `git -C {self.store.path} branch -D {self.branch_of(name)}`"
            ) from error

    def _parse(self, name: str, commit: str) -> Trial:
        entries = self.store.entries(commit)
        stored = None
        if "trial.json" in entries:
            stored = schema.load("trial", self.store.read(entries["trial.json"]), Trial)
        blobs = stored.kernel.files if stored and stored.kernel else {}
        if stored is None or stored.id != name or any(entries.get(k) != v for k, v in blobs.items()):
            return self._pushed(name, commit, entries)
        evaluation = None
        if "evaluation.json" in entries:
            data = self.store.read(entries["evaluation.json"])
            evaluation = schema.load("evaluation", data, Evaluation)
        kernel = replace(stored.kernel, files=self._texts(blobs)) if stored.kernel else None
        return replace(stored, kernel=kernel, evaluation=evaluation)

    def _pushed(self, name: str, commit: str, entries: Mapping[str, str]) -> Trial:
        """A branch that a person made: its files are the kernel, its nearest ancestor with a trial the base."""
        files = self._texts({k: v for k, v in entries.items() if k not in RESERVED_NAMES})
        languages = [LANGUAGES[Path(file).suffix] for file in files if Path(file).suffix in LANGUAGES]
        if not languages:
            raise ValueError(f"no kernel in it; a kernel's file ends in {' '.join(LANGUAGES)}")
        base = self._ancestor(commit, name)
        return Trial(
            name,
            Origin.PUSH,
            (base,) if base else (),
            kernel=Kernel(languages[0], files),
            name=name,
        )

    def _ancestor(self, commit: str, name: str) -> str | None:
        for _ in range(_TRIES):
            found = self.store.trailer(commit, "Trial")
            if found and found != name:
                return found
            parents = self.store.header(commit)[0]
            if not parents:
                return None
            commit = parents[0]
        return None

    def _texts(self, blobs: Mapping[str, str]) -> dict[str, str]:
        return {name: self.store.read(blob).decode() for name, blob in blobs.items()}
