"""git <-> Trial: every kernel ever tried is a branch, and its parents are the kernels it came from.

    refs/heads/<problem>/<run>/<id>          a kernel: written -> evaluated -> confirmed, explained; only ever grows
    refs/tags/approved/<problem>/<run>/<id>  a person's last word on it
    refs/ksflow/<problem>/<run>/open/<id>    an id given to an experiment that has no kernel yet
    refs/ksflow/<problem>/<run>/sessions     one commit for each call of the run: the configuration it was made with
    refs/ksflow/<problem>/<run>/rounds       rounds, selections and plans, before anything acts on them
    refs/ksflow/<problem>/<run>/calls        every model call; .../notes  what was learnt
    refs/ksflow/<problem>/<run>/verdicts     what the judge said when it was asked about a kernel again
    refs/ksflow/<problem>/<run>/proofs       what kernels did for the model that the problem is a region of

Git is the only state. A run that is killed at any moment leaves whole commits: an open id is written next time, a
written kernel is evaluated next time, and nothing is done twice. A verdict holds for one key (problem, judge, target):
of a branch that two machines have judged, each sees its own newest verdict; a trial without one is stale.

A session is one call of a run. Each of its commits ends with `Step: <session>.<number>`, so the order in which several
threads wrote is on record; a replay keeps to it (`Turns`). Any number of threads may use a lineage. What it does not
do: judge, rank or display.
"""

import logging
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import yaml

from ksflow.errors import BudgetError, ConfigError, LineageError, counted
from ksflow.lineage import record
from ksflow.lineage.index import RunIndex, finished
from ksflow.lineage.locks import Turns
from ksflow.lineage.record import ANNOTATION, EXPLANATION, message
from ksflow.lineage.store import THIS, ZERO, Ref, Store
from ksflow.notes import lessons
from ksflow.records import (
    RESERVED_NAMES,
    Approval,
    Call,
    Cost,
    Evaluation,
    Explanation,
    Key,
    Note,
    Origin,
    Plan,
    Population,
    Proof,
    Repeat,
    RoundStep,
    Selection,
    Trial,
    by_number,
    schema,
)
from ksflow.redaction import redact
from ksflow.source import fingerprint

P = ParamSpec("P")
T = TypeVar("T")

NOTHING = Cost()
_LOG = logging.getLogger("ksflow.lineage")
_TRIES = 100
"""How often a ref is tried that other processes move too."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,150}")


Recorded = tuple[Turns, str, bytes]
"""Of a session on record: what it wrote, its settings, and as JSON the notes that it was made with (b"" for none)."""


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
        self._clock = clock
        self._begun: Counter[int] = Counter()
        self._session = self._steps = self._rounds = 0
        """The number of the session that is open, 0 before the first; what was written in it; the rounds of it."""
        self._turns: Turns | None = None
        """The recorded session that is being replayed."""
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        self._codes: dict[str, list[str]] = {}
        """What a kernel compiles to -> the trials that this process was about to have judged, with that code."""
        self._heads = f"refs/heads/{problem}/{run}/"
        self._side = f"refs/ksflow/{problem}/{run}/"
        self.claims = self.store.claims(f"{problem}/{run}/")
        self._index = RunIndex(self.store, self._heads, self._side)
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
        self._index.approved = frozenset(self.approvals())
        self._index.expect(key)

    @_locked
    def expect_as_recorded(self) -> None:
        """From now on a verdict is stale that was made under another key than the newest commit's: for looking only."""
        judged = [trial.id for trial in self.all_trials() if trial.evaluation]
        if not judged:
            return
        dates = self.judged_at(judged)
        name = max(judged, key=lambda name: (dates[name], by_number(name)))
        newest = self.at(name, self._index.at[name]).evaluation
        if newest:
            self.expect(Key(newest.problem, newest.judge, newest.target))

    @_locked
    def population(self) -> Population:
        """Every finished trial, other processes' and pushed ones included."""
        self._index.refresh()
        self._index.read_rounds()
        return self.known

    @property
    def known(self) -> Population:
        """The population as last read, with what this process wrote since. Does not wait for whoever is writing."""
        if population := self._index.known:
            return population
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
            for name, trial in self._index.undone(lately=True).items()
            if not self.claims.held_here(name) and (not origins or trial.origin in origins)
        ]
        mine = [name for name in others if self.claims.acquire(name)]
        undone = self._index.undone() if mine else {}  # again: it may have been finished before the claim
        for name in mine:
            if name not in undone:
                self.claims.release(name)
        return tuple(undone[name] for name in mine if name in undone)

    @_locked
    def reclaim(self, trials: Iterable[Trial]) -> tuple[Trial, ...]:
        """Those that no other process is at work on, claimed and without their verdicts: to be judged once more."""
        return tuple(replace(t, evaluation=None, stale="") for t in trials if self.claims.acquire(t.id))

    @_locked
    def others_at_work(self) -> bool:
        """Whether another process judges seeds of this run, or what has become stale."""
        self._index.refresh()
        awaited = (trial.id for trial in self._index.trials.values() if trial.stale or trial.origin is Origin.SEED)
        return any(map(self.claims.held_elsewhere, awaited))

    @_locked
    def undone(self) -> tuple[int, bool]:
        """How many trials are not finished, and whether another process is at work on one of them."""
        left = self._index.undone()
        return len(left), any(map(self.claims.held_elsewhere, left))

    @_locked
    def said_before(self, trial: Trial) -> Evaluation | None:
        """What was said of an earlier trial of the same form; one that is being judged right now is waited for."""
        names = self._index.same.get(trial.form, ())
        for name in names[: names.index(trial.id)] if trial.id in names else names:
            other = self._await(name)
            verdict = other.evaluation if other and other.form == trial.form and not other.stale else None
            if verdict and verdict.lasting:
                return _taken_over(verdict, verdict.evidence.repeat or Repeat(of=name))
        return None

    def _await(self, name: str) -> Trial | None:
        """A trial, once this process is not judging it any more."""
        while (trial := self._index.trials.get(name)) and not finished(trial) and self.claims.held_here(name):
            self._changed.wait()
        return trial

    @_locked
    def said_of_code(self, trial: Trial, code: str) -> Evaluation | None:
        """What was said of another trial with the same tunables that compiled to this code. One that is being judged is
        waited for.
        """
        if not code:
            return None
        asked = self._codes.setdefault(code, [])
        for name in [name for name in asked if name != trial.id]:
            self._await(name)
        asked.append(trial.id)
        for name, other in sorted(self._index.trials.items()):
            verdict = None if other.stale else other.evaluation
            if verdict and verdict.lasting and verdict.evidence.artefact == code and _tune_alike(trial, other):
                origin = verdict.evidence.repeat
                return _taken_over(verdict, Repeat(of=origin.of if origin else name, compiled=True))
        return None

    def commit_of(self, trial: str) -> str:
        """The commit of a trial's newest verdict, or of its kernel."""
        return self._index.at[trial]

    @_locked
    def approve(self, trial: Trial, note: str = "", sign: bool = False, force: bool = False) -> Approval:
        """A person's last word on a kernel: an annotated tag by that person on the commit of its newest verdict.

        Raises ConfigError when there is nothing to approve.
        """
        branch, evaluation = self.branch_of(trial.id), trial.evaluation
        if evaluation is None or not evaluation.accepted:
            raise ConfigError(f"{branch} is not accepted ({trial.verdict}); only an accepted kernel can be approved")
        if trial.stale:
            raise ConfigError(
                f"{branch} is stale: {trial.stale} changed since {evaluation.judge or 'an older judge'} accepted it on "
                f"{evaluation.target}; go on with the run first, it is judged again"
            )
        if (known := self.approvals().get(trial.id)) and not force:
            raise ConfigError(f"{branch} is {known} already; force=true replaces that")
        trailers = {
            "Trial": trial.id,
            "Kernel": trial.kernel.digest if trial.kernel else "",
            "Verdict": evaluation.verdict.value,
            "Score-us": f"{evaluation.score_us:.6g}",
            "Target": evaluation.target,
            "Judge": evaluation.judge,
            "Problem": evaluation.problem,
        }
        text = message(f"approve {branch}: {evaluation.score_us:.4g} µs", note, trailers)
        self.store.tag(f"approved/{branch}", self.commit_of(trial.id), text, sign, force)
        return self.approvals()[trial.id]

    @_locked
    def approvals(self) -> dict[str, Approval]:
        """Trial id -> what a person said of it."""
        prefix, approvals = f"approved/{self.problem}/{self.run}/", {}
        for tag in self.store.tags(prefix):
            name = tag.name.removeprefix(prefix)
            note = " ".join(line.strip() for line in tag.body.splitlines() if line.startswith("    "))
            head = self.store.ref(f"{self._heads}{name}")
            current = head is not None and tag.commit in (head, self._index.branches.judged(head))
            approvals[name] = Approval(tag.by, note, tag.commit, tag.date, current)
        return approvals

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

    @_locked
    def current_notes(self) -> tuple[Note, ...]:
        """What was learnt so far, as a round begins with it: what later trials contradict is refuted."""
        return lessons.refute_contradicted(self.notes(), self.known, self._index.at, self.at)

    @property
    @_locked
    def settings(self) -> str:
        """What the newest session was made with; empty where there was none."""
        head = self.store.ref(f"{self._side}sessions")
        return self.store.read(f"{head}:session.yaml").decode() if head else ""

    @property
    def made_with(self) -> dict[str, Any]:
        """The same, parsed; nothing where it cannot be read: a secret was struck out."""
        try:
            settings = yaml.safe_load(self.settings)
        except yaml.YAMLError:
            return {}
        return settings if isinstance(settings, dict) else {}

    @property
    @_locked
    def began(self) -> tuple[int, str]:
        """When the newest session was opened, in seconds since 1970, and the highest id that was used by then; 0 and
        nothing where there was none, or where that is not on record."""
        head = self.store.ref(f"{self._side}sessions")
        return (self.store.commit_facts(head)[1], self.store.trailer(head, "After")) if head else (0, "")

    @property
    @_locked
    def sessions(self) -> tuple[int, ...]:
        """When each session was opened, in seconds since 1970, in their order."""
        head = self.store.ref(f"{self._side}sessions")
        return tuple(self.store.commit_facts(name)[1] for name in reversed(self.store.since(head))) if head else ()

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
                with self._turn(f"{name} written"):
                    written = self._written(trial, ())
                if written:
                    planted.append(trial)
                    break
        return tuple(planted)

    @_locked
    def open_session(
        self, settings: str, initial_notes: tuple[Note, ...] = (), again: Callable[[int], Recorded] | None = None
    ) -> Turns | None:
        """Open a session with the settings and the notes it is made with; `again` gives those of a recorded one.

        Returns that one. The notes are `initial_notes` from then on.
        """
        with self.claims.turn("sessions", f"opening a session of {self.run}"):
            head = self.store.ref(f"{self._side}sessions")
            session, self._rounds = int(self.store.trailer(head, "Session")) + 1 if head else 1, 0
            data = schema.dump("notes", initial_notes) if initial_notes else b""
            if again:
                self._turns, settings, data = again(session)
            self.initial_notes = schema.load("notes", data, tuple) if data else initial_notes
            self._session, self._steps = session, 0
            files = {"session.yaml": redact(settings).encode(), **({"handbook.json": data} if data else {})}
            names = (ref.removeprefix(self._heads) for ref in self.store.refs(self._heads))
            trailers = {"Session": str(session), "After": max(filter(str.isdecimal, names), key=by_number, default="")}
            self._append("sessions", files, message(f"session {session}", "", trailers))
        return self._turns

    @_locked
    def begin_round(self) -> Round:
        """Begin a round: what it knows is what is known now. BudgetError where a recording has no more of them."""
        if self._turns and self._rounds >= self._turns.rounds:
            raise BudgetError(f"the recording has {self._rounds} rounds")
        self._rounds += 1
        name = f"{self._session}.{self._rounds}"
        with self._turn(f"round {name}"):
            self._add_step(RoundStep(name), message(f"round {name}", "", {}))
        known = self.known
        self._begun[len(known.trials)] += 1
        return Round(name, known, self.current_notes(), self._begun[len(known.trials)] - 1)

    @_locked
    def select(self, selection: Selection, round_name: str = "") -> None:
        """Keep a selection, before it is acted on."""
        base, reference, rationale = selection.base.id, selection.reference.id, redact(selection.rationale)
        text = message(f"select {base} with {reference}", rationale, {})
        self._add_step(RoundStep(round_name, base, reference, rationale), text)

    @_locked
    def dispatch(
        self, drafts: Sequence[Trial], plan: Plan | None = None, cause: str = "", cost: Cost = NOTHING
    ) -> tuple[Trial, ...]:
        """Give ids to experiments and keep the plan they come from, in one transaction; they are claimed.

        `cause`: the round's name, or the trial that is repaired. `cost`: of the selection and the plan; the experiments
        share it. A plan without a draft is kept, too. A replay gives ids to as many as the recorded run did.
        """
        if self._turns:
            drafts = drafts[: len(self._turns.ids(cause))]
            plan = plan if drafts or self._turns.has(f"ids for {cause}") else None
        if not (drafts or plan):
            return ()
        with self._turn(f"ids for {cause}"):
            for _ in range(_TRIES):
                ids = self._claimed_ids(cause, len(drafts))
                shares = zip(drafts, ids, cost.split(len(ids)) if ids else (), strict=True)
                trials = tuple(replace(draft, id=name, cost=draft.cost + share) for draft, name, share in shares)
                taken = [(f"{self._side}open/{name}", THIS, ZERO) for name in ids]
                taken += [(f"{self._heads}{name}", "", ZERO) for name in ids]
                subject = f"{'plan' if plan else 'repair as'} {', '.join(ids) or 'without a trial'}"
                text = message(subject, "\n".join(plan.avenues) if plan else "", {})
                step = RoundStep(cause, ids=tuple(ids), planned=plan is not None)
                if commit := self._add_step(step, text, plan, trials, taken):
                    self._index.open |= dict.fromkeys(ids, commit)
                    return trials
                for name in ids:
                    self.claims.release(name)
                self._index.refresh()
        raise LineageError(f"{self.store.path}: no id could be taken in {_TRIES} tries")

    def _claimed_ids(self, cause: str, count: int) -> Sequence[str]:
        """Ids that nobody uses, or in a replay those that were given then."""
        if not self._turns:
            return self._free_ids(count)
        ids = self._turns.ids(cause)[:count]
        if not all(map(self.claims.acquire, ids)):
            raise LineageError(f"{self.store.path}: another process replays run {self.run}; name another with run=")
        return ids

    @_locked
    def write(self, trial: Trial) -> Trial:
        """Commit a dispatched trial's kernel, or the reason there is none. Returns the trial as it is kept.

        Its id is another one where somebody else has pushed a branch of that name meanwhile. Raises LineageError.
        """
        opened = f"{self._side}open/{trial.id}"
        source = self.store.ref(opened)
        closing = [(opened, ZERO, source)] if source else []
        with self._turn(f"{trial.id} written"):
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
            renamed = replace(trial, id=name)
            if self._written(renamed, closing):
                _LOG.warning("branch %s was pushed meanwhile: its experiment is %s", self.branch_of(trial.id), name)
                self._index.open.pop(trial.id, None)
                return renamed
        raise LineageError(f"{self.branch_of(trial.id)} was written by somebody else; run again")

    @_locked
    def evaluate(self, trial: Trial, label: str = "evaluated") -> None:
        """Commit a verdict on top of the kernel it judges, also where that branch has grown by another verdict.

        Where a person has removed the branch or put another kernel on it, the verdict is about nothing that is there:
        it is left out, which is logged. Raises LineageError.
        """
        assert trial.evaluation is not None
        verdict, ref = trial.evaluation.verdict.value, f"{self._heads}{trial.id}"
        with self._turn(f"{trial.id} {verdict}"):
            for _ in range(_TRIES):
                if not self._holds(trial):
                    self._index.refresh()
                if not self._holds(trial):
                    warning = "the verdict %s on %s is left out: its branch is gone, or holds another kernel"
                    _LOG.warning(warning, verdict, self.branch_of(trial.id))
                    break
                head, explanation = self._index.tips[trial.id], self._explained(trial.id)
                files, text = record.as_commit(self.store, trial, label)
                if commit := self._commit((ref, THIS, head), files | explanation, (head,), text):
                    self._index.branches.explained |= {commit} if explanation else set()
                    self._index.keep(trial, commit)
                    break
                self._index.refresh()
            else:
                raise LineageError(f"{self.store.path}: {self.branch_of(trial.id)} was moved {_TRIES} times meanwhile")
        self.release(trial)

    @_locked
    def explain(self, trial: Trial, explanation: Explanation) -> None:
        """Commit an explanation on top of the kernel that it is of. LineageError where that is gone."""
        counts = Counter(feature.state.value for feature in explanation.features)
        sums = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        trailers = {"Trial": trial.id, ANNOTATION: "explanation"}
        text, ref = message(f"{trial.id} explained: {sums}", explanation.summary, trailers), f"{self._heads}{trial.id}"
        for _ in range(_TRIES):
            self._index.refresh()
            if not self._holds(trial):
                raise LineageError(f"{self.branch_of(trial.id)} is gone, or holds another kernel; look with `lineage`")
            head = self._index.tips[trial.id]
            files: dict[str, bytes | str] = {
                **self.store.entries(head),
                EXPLANATION: schema.dump("explanation", explanation),
            }
            if commit := self._commit((ref, THIS, head), files, (head,), text):
                self._index.tips[trial.id] = commit
                self._index.branches.explained.add(commit)
                return
        raise LineageError(f"{self.store.path}: {self.branch_of(trial.id)} was moved {_TRIES} times meanwhile")

    @_locked
    def record_verdict(self, trial: Trial, evaluation: Evaluation) -> None:
        """Keep what the judge said when it was asked about a kernel again, before it is acted on."""
        text = message(f"{trial.id} again: {evaluation.verdict.value}", evaluation.reason, {"Trial": trial.id})
        self._append("verdicts", {"evaluation.json": schema.dump("evaluation", evaluation)}, text)

    @_locked
    def record_proof(self, proof: Proof) -> None:
        """Keep what kernels, this run's among them, did for a whole model."""
        ratios = "; ".join(f"{way.name} {way.ratio}" for way in proof.ways) or "no result"
        text = message(f"{proof.model} with kernels: {ratios}", "\n".join(proof.remarks), {})
        self._append("proofs", {"proof.json": schema.dump("proof", proof)}, text)

    @_locked
    def proof(self) -> tuple[Proof, int] | None:
        """The newest of them, and when it was made, in seconds since 1970. LineageError."""
        head = self.store.ref(f"{self._side}proofs")
        if head is None:
            return None
        return schema.load("proof", self.store.read(f"{head}:proof.json"), Proof), self.store.commit_facts(head)[1]

    @_locked
    def learn(
        self, notes: tuple[Note, ...], trials: int = 0, began: tuple[Note, ...] | None = None
    ) -> tuple[Note, ...]:
        """Keep what a digest made of the notes that it `began` with (those of now, where that is not said), learnt from
        so many trials; all notes as they are kept.

        New ones cite their trials at the commits that are the newest now; old ones that were contradicted are refuted;
        what others have learnt meanwhile stays.
        """
        with self._turn(f"notes of {trials}"):
            for _ in range(_TRIES):
                head, before = self.store.ref(f"{self._side}notes") or ZERO, self.notes()
                after = lessons.refute_contradicted(before, self.known, self._index.at, self.at)
                old = {**dict(zip(before, after, strict=True)), **{note: note for note in after}}
                merged = lessons.merged(notes, after if began is None else began, after)
                learnt = tuple(old.get(note) or lessons.cite_commits(note, self._index.at, before) for note in merged)
                text = "\n\n".join(f"## {note.title}\n\n{note.text}" for note in learnt)
                files = {"notes.json": schema.dump("notes", learnt), "notes.md": text.encode()}
                subject = message(counted(len(learnt), "note"), "", {"Trials": str(trials)})
                if self._append("notes", files, subject, after=head):
                    return learnt
        raise LineageError(f"{self.store.path}: the notes could not be kept in {_TRIES} tries")

    @_locked
    def release(self, trial: Trial) -> None:
        """Give the claim on a trial back, finished or not; whoever waits for it is woken."""
        self.claims.release(trial.id)
        self._changed.notify_all()

    @_locked
    def release_all(self) -> None:
        """Give every claim back: whoever comes next may take up what is unfinished."""
        self.claims.release_all()

    @_locked
    def record(self, call: Call) -> None:
        """Keep a model call, before its answer is used."""
        body = call.error or call.answer[:200]
        text = message(f"{call.stage}: {call.model}", body, {"Cost-usd": f"{call.cost.usd:.6f}"})
        self._append("calls", {"call.json": schema.dump("call", call)}, text)

    @_locked
    def close(self) -> None:
        """Pack, and end git's helper processes."""
        self._closed = True
        with suppress(LineageError):  # packing is a comfort; whatever is wrong was said by the read that met it
            self.store.maintain(force=True)
        self.store.close()

    def _ids_to_try(self) -> Iterator[str]:
        """One free id after the other, each claimed; whoever asks for the next one could not use the last."""
        for _ in range(_TRIES):
            name = self._free_ids(1)[0]
            yield name
            self.claims.release(name)
            self._index.refresh()

    def _free_ids(self, count: int) -> Sequence[str]:
        """Ids above those that branches and open ids of the run have, readable or not; they are claimed."""
        damaged = (ref.rpartition("/")[2] for ref in self.store.damaged if ref.startswith(self.prefixes))
        return self.claims.free_ids(count, (self._index.newest, *self._index.open, *self._index.unread, *damaged))

    def _explained(self, trial: str) -> dict[str, str]:
        """The file with a trial's explanation -> its blob; nothing where there is none."""
        tip = self._index.tips.get(trial, "")
        entries = self.store.entries(tip) if tip in self._index.branches.explained else {}
        return {name: blob for name, blob in entries.items() if name == EXPLANATION}

    def _holds(self, trial: Trial) -> bool:
        """Whether the trial's branch is there and has the trial's kernel, as last read."""
        known = self._index.trials.get(trial.id)
        return bool(known and known.kernel and trial.kernel and known.kernel.files == trial.kernel.files)

    def _written(self, trial: Trial, closing: Sequence[Ref]) -> bool:
        parents = [self._index.at[name] for name in dict.fromkeys(trial.parents) if name in self._index.at]
        files, text = record.as_commit(self.store, trial, "written")
        commit = self._commit((f"{self._heads}{trial.id}", THIS, ZERO), files, parents, text, closing)
        if commit:
            self._index.keep(trial, commit)
            self._index.open.pop(trial.id, None)
        return bool(commit)

    def _add_step(
        self,
        step: RoundStep,
        text: str,
        plan: Plan | None = None,
        trials: Sequence[Trial] = (),
        taken: Sequence[Ref] = (),
    ) -> str:
        """Keep a step of a round, with the plan and the experiments that were given ids in it. The commit; empty where
        somebody else has taken one of the ids.
        """
        files = {"round.json": schema.dump("round", step)}
        files |= {"plan.json": schema.dump("plan", plan)} if plan else {}
        files |= {"trials.json": schema.dump("trials", tuple(trials))} if plan or trials else {}
        if commit := self._append("rounds", files, text, taken):
            before = self.store.header(commit)[0]
            self._index.grow_rounds(next(iter(before), ZERO), commit, step, plan)
        return commit

    def _append(
        self, chain: str, files: Mapping[str, bytes], text: str, others: Sequence[Ref] = (), after: str = ""
    ) -> str:
        """Grow a chain by one commit, and change others with it. The commit; empty when one was not as expected.

        after: the chain's end that the files were made from (`ZERO` for none); empty where it has another one by now.
        """
        ref = f"{self._side}{chain}"
        for _ in range(_TRIES):
            head = after or self.store.ref(ref) or ZERO
            if commit := self._commit((ref, THIS, head), files, [head] if head != ZERO else [], text, others):
                return commit
            if after or (others and (self.store.ref(ref) or ZERO) == head):
                return ""
        raise LineageError(f"{self.store.path}: {ref} could not be moved in {_TRIES} tries")

    def _commit(
        self,
        ref: Ref,
        files: Mapping[str, bytes | str],
        parents: Sequence[str],
        text: str,
        others: Sequence[Ref] = (),
    ) -> str:
        """Make a commit, and change a ref and others with it; empty where one of them was not as expected."""
        if self._closed:
            raise LineageError(f"{self.store.path} is closed")
        text = redact(text)
        if self._session:
            *before, last = text.rstrip("\n").split("\n\n")  # trailers, where there are any
            text += f"{'' if before and last[0] != ' ' else chr(10)}Step: {self._session}.{self._steps + 1}\n"
        commit = self.store.commit(files, parents, text, int(self._clock()), (ref, *others))
        self._steps += bool(commit)
        return commit

    def _turn(self, step: str) -> AbstractContextManager[None]:
        """What is written within waits in a replay until it is its turn."""
        return self._turns.turn(step, self._changed) if self._turns else nullcontext()


def _tune_alike(trial: Trial, other: Trial) -> bool:
    """Whether two kernels declare the same tunables: with others the same machine code is another kernel to tune."""
    ours, theirs = (fingerprint.declarations(each.kernel) if each.kernel else [] for each in (trial, other))
    return ours == theirs


def _taken_over(verdict: Evaluation, origin: Repeat) -> Evaluation:
    """A verdict as that on a repeat: without what was said beside other trials."""
    about_neighbours: dict[str, Any] = {"against": (), "claim": None, "renewed": None, "unconfirmed": ""}
    return replace(verdict.with_evidence(repeat=origin, **about_neighbours), wall_s=0.0)
