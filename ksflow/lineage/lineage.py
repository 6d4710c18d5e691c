"""git <-> Trial: every kernel ever tried is a branch, and its parents are the kernels it came from.

    refs/heads/<problem>/<run>/<id>          a kernel: written -> evaluated -> confirmed, explained; only ever grows
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

import logging
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from ksflow.errors import BudgetError, ConfigError, LineageError, counted
from ksflow.lineage import commit_message
from ksflow.lineage.branches import EXPLANATION
from ksflow.lineage.claims import Claims
from ksflow.lineage.commit_order import LiveOrder, ReplayedOrder
from ksflow.lineage.commits import TRIES, Commits
from ksflow.lineage.store import ZERO, Ref, Store
from ksflow.lineage.trial_index import TrialIndex, finished
from ksflow.notes import lessons
from ksflow.records import (
    RESERVED_NAMES,
    Call,
    Choice,
    Cost,
    Evaluation,
    Explanation,
    Key,
    Note,
    Origin,
    Plan,
    Population,
    Trial,
    schema,
)
from ksflow.redaction import redact
from ksflow.source import fingerprint

P = ParamSpec("P")
T = TypeVar("T")

NOTHING = Cost()
_LOG = logging.getLogger("ksflow.lineage")
_SESSIONS_S = 300.0
"""Opening a session takes a moment."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,150}")


Recorded = tuple[LiveOrder | ReplayedOrder, str, bytes]
"""Of a session on record: its steps, its settings, and as JSON the notes that it was made with (b"" for none)."""


class Round(NamedTuple):
    """A round that has begun."""

    name: str
    """`<session>.<number>`"""
    known: Population
    """Every finished trial when it began."""
    notes: tuple[Note, ...]
    """What was learnt until then."""
    sample: int = 0
    """How many rounds had begun before it with the same knowledge: models are to answer each of them differently."""


def _locked(method: Callable[Concatenate["Lineage", P], T]) -> Callable[Concatenate["Lineage", P], T]:
    """Let one thread at a time into the method."""

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
                what = "; rename the problem's folder" if kind == "problem" else ""
                raise ConfigError(f"{kind}={name!r} cannot name a git branch; use letters, digits, - and _{what}")
        self.problem, self.run = problem, run
        self.store = Store(Path(path), create)
        self._begun: Counter[int] = Counter()
        self._rounds = 0
        self._changed = threading.Condition(threading.RLock())
        self._heads = f"refs/heads/{problem}/{run}/"
        self._side = f"refs/ksflow/{problem}/{run}/"
        self._claims = Claims(self.store, f"{problem}/{run}/")
        self._commits = Commits(self.store, self._side, LiveOrder(clock), self._changed)
        self._index = TrialIndex(self.store, self._heads, f"{self._side}open/")
        self._notes: tuple[str, tuple[Note, ...]] = ("", ())
        self._calls_read = ""
        """The newest model call that was read."""
        self._costs: defaultdict[tuple[str, str], Cost] = defaultdict(Cost)
        self._dates: dict[str, int] = {}
        """Commit of a verdict -> when it was made."""
        self.initial_notes: tuple[Note, ...] = ()
        """Notes that the session was made with."""

    # -- reading ---------------------------------------------------------------------------------

    @_locked
    def expect(self, key: Key) -> None:
        """From now on a verdict under another key is stale. Without this every verdict holds."""
        self._index.expect(key)

    @_locked
    def expect_as_recorded(self) -> None:
        """From now on a verdict is stale that was made under another key than the newest commit's: for looking only."""
        found = [trial.id for trial in self.all_trials() if trial.evaluation]
        if not found:
            return
        dates = self.judged_at(found)
        name = max(found, key=lambda name: (dates[name], name))
        newest = self.at(name, self._index.at[name]).evaluation
        if newest:
            self.expect(Key(newest.problem, newest.judge, newest.target))

    @_locked
    def population(self) -> Population:
        """Every finished trial, other processes' and pushed ones included."""
        self._index.refresh()
        return self.known

    @property
    def known(self) -> Population:
        """The population as last read, with what this process wrote since. Does not wait for whoever is writing."""
        if found := self._index.known:
            return found
        with self._changed:
            return self._index.population()

    @_locked
    def all_trials(self) -> tuple[Trial, ...]:
        """Every trial that has a branch, finished or not, as it stands now."""
        self._index.refresh()
        return self._index.all_trials()

    @_locked
    def unfinished(self, *origins: Origin) -> tuple[Trial, ...]:
        """What an earlier or a killed run left undone, claimed for this one: to be written, or to be evaluated.

        Of some origins, or of any.
        """
        others = [
            name
            for name, trial in self._index.undone().items()
            if not self._claims.held_here(name) and (not origins or trial.origin in origins)
        ]
        mine = [name for name in others if self._claims.acquire(name)]
        undone = self._index.undone() if mine else {}  # again: it may have been finished before the claim
        for name in mine:
            if name not in undone:
                self._claims.release(name)
        return tuple(undone[name] for name in mine if name in undone)

    @_locked
    def reclaim(self, trials: Iterable[Trial]) -> tuple[Trial, ...]:
        """Those that no other process is at work on, claimed and without their verdicts: to be judged once more."""
        return tuple(replace(t, evaluation=None, stale="") for t in trials if self._claims.acquire(t.id))

    @_locked
    def others_at_work(self) -> bool:
        """Whether another process is at work on a trial of this run."""
        return bool(self._index.undone()) or any(self._claims.held_elsewhere(trial.id) for trial in self.known.stale)

    @_locked
    def undone(self) -> tuple[int, bool]:
        """How many trials are not finished, and whether another process is at work on one of them."""
        left = self._index.undone()
        return len(left), any(map(self._claims.held_elsewhere, left))

    @_locked
    def earlier_with_same_code(self, trial: Trial) -> tuple[str, ...]:
        """The trials of the same form that were written before this one."""
        names = self._index.same.get(trial.form, ())
        return names[: names.index(trial.id)] if trial.id in names else names

    def wait_finished(self, trial: str) -> Trial | None:
        """A trial once this process has done with it; None where it is unfinished then."""
        with self._changed:
            while (found := self._index.trials.get(trial)) and not finished(found):
                if not self._claims.held_here(trial):
                    return None
                self._changed.wait()
            return found

    def commit_of(self, trial: str) -> str:
        """The commit of a trial's newest verdict, or of its kernel."""
        return self._index.at[trial]

    @_locked
    def explanation(self, trial: str) -> Explanation | None:
        """What is kept of a trial's features; None where nothing is. What cannot be read counts as nothing, logged."""
        try:
            return schema.load("explanation", self.store.read(self._explained(trial)[EXPLANATION]), Explanation)
        except KeyError:
            return None
        except LineageError as error:
            _LOG.warning("%s: its explanation is left out: %s", self.branch_of(trial), error)
            return None

    @_locked
    def at(self, trial: str, commit: str) -> Trial:
        """A trial as one commit of its branch has it, whatever its verdict holds for. Raises LineageError."""
        return self._index.branches.load(trial, commit)

    def branch_of(self, trial: str) -> str:
        """The branch's short name."""
        return f"{self.problem}/{self.run}/{trial}"

    @_locked
    def diff(self, first: str, second: str) -> str:
        """How the kernel's files changed from one trial to another."""
        return self.store.diff(self._index.at[first], self._index.at[second], RESERVED_NAMES)

    @property
    def prefixes(self) -> tuple[str, str]:
        """Where the run's refs are."""
        return self._heads, self._side

    @_locked
    def runs(self) -> str:
        """The runs of every problem in this repository, as text."""
        return ", ".join(map("/".join, self.store.runs())) or "none"

    @_locked
    def notes(self) -> tuple[Note, ...]:
        """What was learnt so far."""
        head = self.store.ref(f"{self._side}notes")
        if head is None:
            return ()
        if head != self._notes[0]:
            self._notes = head, schema.load("notes", self.store.read(f"{head}:notes.json"), tuple)
        return self._notes[1]

    @property
    @_locked
    def settings(self) -> str:
        """What the newest session was made with; empty where there was none."""
        head = self.store.ref(f"{self._side}sessions")
        return self.store.read(f"{head}:session.yaml").decode() if head else ""

    @property
    @_locked
    def identity(self) -> str:
        """Sixteen letters and digits that no other run has: of the commit of its first session. LineageError."""
        head = self.store.ref(f"{self._side}sessions")
        if head is None:
            raise LineageError(f"{self.problem}/{self.run} has no session yet: it has no identity before one is opened")
        return self.store.since(head)[-1][:16]

    @property
    @_locked
    def digested(self) -> int:
        """From how many trials the notes were learnt."""
        head = self.store.ref(f"{self._side}notes")
        return int(self.store.trailer(head, "Trials") or 0) if head else 0

    @_locked
    def spent(self) -> Cost:
        """What all model calls on record have cost: of every session and every process of the run.

        Every figure about the whole run comes from here. A call that cannot be read is left out, which is logged.
        """
        return sum(self.costs().values(), NOTHING)

    @_locked
    def costs(self) -> dict[tuple[str, str], Cost]:
        """The same by stage and model."""
        head = self.store.ref(f"{self._side}calls")
        if head and head != self._calls_read:
            for commit in self.store.since(head, self._calls_read):
                try:
                    call: Call = schema.load("call", self.store.read(f"{commit}:call.json"), Call)
                    self._costs[call.stage.partition("=")[0], call.model] += call.cost
                except LineageError as error:
                    _LOG.warning("the cost of a model call is left out: %s", error)
            self._calls_read = head
        return dict(self._costs)

    @_locked
    def judged_at(self, trials: Iterable[str]) -> dict[str, int]:
        """When the newest verdict of each trial, or its kernel, was committed, in seconds since 1970."""
        heads = {name: self._index.at[name] for name in trials}
        new = [head for head in heads.values() if head not in self._dates]
        with self.store.read_ahead(new):
            self._dates |= {head: self.store.commit_facts(head)[1] for head in new}
        return {name: self._dates[head] for name, head in heads.items()}

    # -- writing ---------------------------------------------------------------------------------

    @_locked
    def add_seeds(self, seeds: Iterable[Trial]) -> tuple[Trial, ...]:
        """Commit kernels that come from outside (each with no id yet); those with their ids, claimed."""
        planted = []
        for seed in seeds:
            form = fingerprint.source_fingerprint(seed.kernel) if seed.kernel else ""
            for name in self._ids_to_try():
                trial = replace(seed, id=name, form=form)
                if self._written(trial, ()):
                    planted.append(trial)
                    break
        return tuple(planted)

    @_locked
    def open_session(
        self, settings: str, initial_notes: tuple[Note, ...] = (), again: Callable[[int], Recorded] | None = None
    ) -> ReplayedOrder | None:
        """Open a session with the settings and the notes it is made with; `again` gives those of a recorded one.

        Returns the steps where they are the recorded ones. The notes are `initial_notes` from then on.
        """
        until = time.monotonic() + _SESSIONS_S
        while not self._claims.acquire("sessions"):
            if time.monotonic() > until:
                file = self.store.path / "ksflow" / "claims"
                words = f"another process has been opening a session of {self.run} for {_SESSIONS_S:g} s"
                raise LineageError(f"{words}: end it (fuser -v {file})")
            time.sleep(0.05)
        head = self.store.ref(f"{self._side}sessions")
        session, self._rounds = int(self.store.trailer(head, "Session")) + 1 if head else 1, 0
        data = schema.dump("notes", initial_notes) if initial_notes else b""
        steps = self._commits.steps
        if again:
            steps, settings, data = again(session)
        self.initial_notes = schema.load("notes", data, tuple) if data else initial_notes
        self._commits.begin(session, steps)
        number = str(session)
        text = commit_message.plain(f"session {number}", "", {"Session": number})
        files = {"session.yaml": redact(settings).encode(), **({"handbook.json": data} if data else {})}
        self._commits.append("sessions", files, text)
        self._claims.release("sessions")
        return steps if isinstance(steps, ReplayedOrder) else None

    @_locked
    def begin_round(self) -> Round:
        """Begin a round: what it knows is what is known now. BudgetError where a recording has no more of them."""
        if self._rounds >= self._commits.steps.rounds:
            raise BudgetError(f"the recording has {self._rounds} rounds")
        self._rounds += 1
        name = f"{self._commits.session}.{self._rounds}"
        self._commits.append("rounds", {}, commit_message.plain(f"round {name}", "", {"Round": name}))
        known = self.known
        self._begun[len(known.trials)] += 1
        notes = lessons.refute_contradicted(self.notes(), known, self._index.at, self.at)
        return Round(name, known, notes, self._begun[len(known.trials)] - 1)

    @_locked
    def select(self, choice: Choice, round_name: str = "") -> None:
        """Keep a selection, before it is acted on."""
        picks = {"Base": choice.base.id, "Reference": choice.reference.id, "Round": round_name}
        subject = f"select {choice.base.id} with {choice.reference.id}"
        self._commits.append("rounds", {}, commit_message.plain(subject, choice.rationale, picks))

    @_locked
    def dispatch(
        self,
        drafts: Sequence[Trial],
        plan: Plan | None = None,
        cause: str = "",
        reserve: Callable[[int], int] = int,
        cost: Cost = NOTHING,
    ) -> tuple[Trial, ...]:
        """Give ids to experiments and keep the plan they come from, in one transaction; they are claimed.

        `cause`: the round's name, or the trial that is repaired. `reserve`: how many of so many may be taken.
        `cost`: of the selection and the plan; those that are taken share it.
        """
        files = {"plan.json": schema.dump("plan", plan)} if plan else {}
        body = "\n".join(plan.avenues) if plan else ""
        given = self._commits.steps.ids(cause)
        count = reserve(len(drafts) if given is None else min(len(given), len(drafts)))
        for _ in range(TRIES if count else 0):
            ids = self._claims.free(count, self._index.used) if given is None else self._claims.recorded(given[:count])
            taken = zip(drafts, ids, cost.split(len(ids)), strict=False)
            trials = tuple(replace(draft, id=name, cost=draft.cost + share) for draft, name, share in taken)
            files["trials.json"] = schema.dump("trials", trials)
            opened = [(f"{self._side}open/{name}", ZERO) for name in ids]
            unused = [(f"{self._heads}{name}", "", ZERO) for name in ids]
            text = commit_message.plain(f"{'plan' if plan else 'repair as'} {', '.join(ids)}", body, {"Cause": cause})
            if self._commits.append("rounds", files, text, opened, unused):
                self._index.open |= dict.fromkeys(ids, "")
                return trials
            for name in ids:
                self._claims.release(name)
            self._index.refresh()
        if not count:
            return ()
        raise LineageError(f"{self.store.path}: no id could be taken in {TRIES} tries")

    @_locked
    def write(self, trial: Trial) -> Trial:
        """Commit a dispatched trial's kernel, or the reason there is none. Returns the trial as it is kept.

        Its id is another one where somebody else has pushed a branch of that name meanwhile. Raises LineageError.
        """
        opened = f"{self._side}open/{trial.id}"
        source = self.store.ref(opened)
        closing = [(opened, ZERO, source)] if source else []
        if not self._written(trial, closing):
            trial = self._renamed(trial, closing)
        if trial.failure:
            self.release(trial)
        return trial

    def _renamed(self, trial: Trial, closing: Sequence[Ref]) -> Trial:
        """Commit a trial whose branch exists already under the next free id."""
        self.release(trial)
        self._index.refresh()
        for name in self._ids_to_try():
            made = replace(trial, id=name)
            if self._written(made, closing):
                _LOG.warning("branch %s was pushed meanwhile: its experiment is %s", self.branch_of(trial.id), name)
                self._index.open.pop(trial.id, None)
                return made
        raise LineageError(f"{self.branch_of(trial.id)} was written by somebody else; run again")

    @_locked
    def evaluate(self, trial: Trial, label: str = "evaluated") -> None:
        """Commit a verdict on top of the kernel it judges, also where that branch has grown by another verdict.

        Where a person has removed the branch or put another kernel on it, the verdict is about nothing that is there:
        it is left out, which is logged. Raises LineageError.
        """
        assert trial.evaluation is not None
        for _ in range(TRIES):
            if not self._holds(trial):
                self._index.refresh()
            if not self._holds(trial):
                _LOG.warning(
                    "the verdict %s on %s is left out: its branch is gone, or holds another kernel",
                    trial.evaluation.verdict.value,
                    self.branch_of(trial.id),
                )
                break
            head = self._index.tip(trial.id)
            kept = self._explained(trial.id)
            commit = self._commits.trial(trial, (head,), label, kept)
            if self.store.move([(f"{self._heads}{trial.id}", commit, head)]):
                self._index.branches.explained |= {commit} if kept else set()
                self._commits.stepped()
                self._index.keep(trial, commit)
                break
            self._index.refresh()
        else:
            raise LineageError(f"{self.store.path}: {self.branch_of(trial.id)} could not be moved in {TRIES} tries")
        self.release(trial)
        self.store.maintain()

    @_locked
    def explain(self, trial: Trial, explanation: Explanation) -> None:
        """Commit an explanation on top of the kernel that it is of. LineageError where that is gone."""
        counts = Counter(feature.state.value for feature in explanation.features)
        told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        text = commit_message.plain(
            f"{trial.id} explained: {told}",
            explanation.summary,
            {"Trial": trial.id, commit_message.ANNOTATION: "explanation"},
        )
        for _ in range(TRIES):
            self._index.refresh()
            if not self._holds(trial):
                raise LineageError(f"{self.branch_of(trial.id)} is gone, or holds another kernel; look with `lineage`")
            head = self._index.tip(trial.id)
            commit = self._commits.annotation(head, EXPLANATION, schema.dump("explanation", explanation), text)
            if self.store.move([(f"{self._heads}{trial.id}", commit, head)]):
                self._commits.stepped()
                self._index.annotated[trial.id] = commit
                self._index.branches.explained.add(commit)
                return
        raise LineageError(f"{self.store.path}: {self.branch_of(trial.id)} could not be moved in {TRIES} tries")

    @_locked
    def record_verdict(self, trial: Trial, evaluation: Evaluation) -> None:
        """Keep what the judge said when it was asked about a kernel again, before it is acted on."""
        text = commit_message.plain(
            f"{trial.id} again: {evaluation.verdict.value}", evaluation.reason, {"Trial": trial.id}
        )
        self._commits.append("verdicts", {"evaluation.json": schema.dump("evaluation", evaluation)}, text)

    @_locked
    def learn(
        self, notes: tuple[Note, ...], trials: int = 0, began: tuple[Note, ...] | None = None
    ) -> tuple[Note, ...]:
        """Keep what a digest made of the notes that it `began` with (those of now, where that is not said), learnt from
        so many trials; all notes as they are kept.

        New ones cite their trials at the commits that are the newest now; old ones that were contradicted are refuted;
        what others have learnt meanwhile stays.
        """
        self._commits.steps.await_turn(f"Trials: {trials}", self._changed)
        for _ in range(TRIES):
            head, before = self.store.ref(f"{self._side}notes") or ZERO, self.notes()
            after = lessons.refute_contradicted(before, self.known, self._index.at, self.at)
            old = {**dict(zip(before, after, strict=True)), **{note: note for note in after}}
            merged = lessons.merged(notes, after if began is None else began, after)
            kept = tuple(old.get(note) or lessons.cite_commits(note, self._index.at, before) for note in merged)
            text = "\n\n".join(f"## {note.title}\n\n{note.text}" for note in kept)
            files = {"notes.json": schema.dump("notes", kept), "notes.md": text.encode()}
            message = commit_message.plain(counted(len(kept), "note"), "", {"Trials": str(trials)})
            if self._commits.append("notes", files, message, after=head):
                return kept
        raise LineageError(f"{self.store.path}: the notes could not be kept in {TRIES} tries")

    @_locked
    def release(self, trial: Trial) -> None:
        """Give the claim on a trial back, finished or not; whoever waits for it is woken."""
        self._claims.release(trial.id)
        self._changed.notify_all()

    @_locked
    def release_all(self) -> None:
        """Give every claim back: whoever comes next may take up what is unfinished."""
        self.store.release_all()

    @_locked
    def record(self, call: Call) -> None:
        """Keep a model call, before its answer is used."""
        body = call.error or call.answer[:200]
        text = commit_message.plain(f"{call.stage}: {call.model}", body, {"Cost-usd": f"{call.cost.usd:.6f}"})
        self._commits.append("calls", {"call.json": schema.dump("call", call)}, text)

    @_locked
    def close(self) -> None:
        """Pack, and end git's helper processes."""
        self._commits.closed = True
        with suppress(LineageError):  # packing is a comfort; whatever is wrong was said by the read that met it
            self.store.maintain(force=True)
        self.store.close()

    def _ids_to_try(self) -> Iterator[str]:
        """One free id after the other, each claimed; whoever asks for the next one could not use the last."""
        for _ in range(TRIES):
            name = self._claims.free(1, self._index.used)[0]
            yield name
            self._claims.release(name)
            self._index.refresh()

    def _explained(self, trial: str) -> dict[str, str]:
        """The file with a trial's explanation -> its blob; nothing where there is none."""
        tip = self._index.tip(trial)
        found = self.store.entries(tip) if tip in self._index.branches.explained else {}
        return {name: blob for name, blob in found.items() if name == EXPLANATION}

    def _holds(self, trial: Trial) -> bool:
        """Whether the trial's branch is there and has the trial's kernel, as last read."""
        known = self._index.trials.get(trial.id)
        return bool(known and known.kernel and trial.kernel and known.kernel.files == trial.kernel.files)

    def _written(self, trial: Trial, closing: Sequence[Ref]) -> bool:
        parents = [self._index.at[name] for name in dict.fromkeys(trial.parents) if name in self._index.at]
        commit = self._commits.trial(trial, parents, "written")
        done = self.store.move([(f"{self._heads}{trial.id}", commit, ZERO), *closing])
        if done:
            self._commits.stepped()
            self._index.keep(trial, commit)
            self._index.open.pop(trial.id, None)
        return done
