"""What rounds and trials write into a run: each step is a commit before the next one begins.

`TrialLog` is that part of `Lineage` which every trial passes through: a round begins, selects and plans; a kernel is
written and judged.
"""

import logging
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ksflow.errors import BudgetError, ConfigError, LineageError
from ksflow.kernels.source import fingerprint
from ksflow.lineage import record
from ksflow.lineage.index import RunIndex, is_finished
from ksflow.lineage.locks import Turns
from ksflow.lineage.record import EXPLANATION, message
from ksflow.lineage.refs import ZERO, Ref
from ksflow.lineage.store import THIS, Store
from ksflow.notes import lessons
from ksflow.records import Call, Cost, Evaluation, Note, Plan, Population, Repeat, RoundStep, Selection, Trial, schema
from ksflow.redaction import redact

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="TrialLog")

NOTHING = Cost()
_LOG = logging.getLogger("ksflow.lineage")
TRIES = 100  # how often a ref is tried that other processes move too
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,150}")

Recorded = tuple[Turns, str, bytes]
"""Of a session on record: what it wrote, its settings, and as JSON the notes that it was made with (b"" for none)."""


class Round(NamedTuple):
    """A round that has begun."""

    name: str  # `<session>.<number>`
    population: Population  # every finished trial when it began
    notes: tuple[Note, ...]  # what was learnt until then
    sample: int = 0
    """How many rounds had begun before it with the same knowledge: models are to answer each of them differently."""


def locked(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let one thread at a time into the method."""

    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._changed:
            return method(self, *args, **kwargs)

    return update_wrapper(guarded, method)


class TrialLog:
    """What rounds and trials write, and what is known of them. `clock` gives the dates (seconds since 1970)."""

    def __init__(
        self,
        path: str | Path,
        problem: str,
        run: str = "main",
        clock: Callable[[], float] = time.time,
        create: bool = True,
    ) -> None:
        """path: the repository. run: which of its runs. create: whether to make the repository where there is none."""
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
        self._turns: Turns | None = None  # the recorded session that is being replayed
        self._changed = threading.Condition(threading.RLock())
        self._codes: dict[str, list[str]] = {}
        """What a kernel compiles to -> the trials that this process was about to have judged, with that code."""
        self._heads = f"refs/heads/{problem}/{run}/"
        self._side = f"refs/ksflow/{problem}/{run}/"
        self.claims = self.store.claims(f"{problem}/{run}/")
        self._index = RunIndex(self.store, self._heads, self._side)
        self._notes: tuple[str, tuple[Note, ...]] = ("", ())
        self._calls_read = ""  # the newest model call that was read
        self._costs: defaultdict[tuple[str, str], Cost] = defaultdict(Cost)
        self._dates: dict[str, int] = {}  # commit of a verdict -> when it was made
        self.initial_notes: tuple[Note, ...] = ()  # notes that the session was made with

    @locked
    def population(self) -> Population:
        """Every finished trial, other processes' and pushed ones included."""
        self._index.refresh()
        self._index.read_rounds()
        return self.last_population

    @property
    def last_population(self) -> Population:
        """The population as last read, with what this process wrote since. Does not wait for whoever is writing."""
        if population := self._index.known:
            return population
        with self._changed:
            return self._index.population()

    @locked
    def said_before(self, trial: Trial) -> Evaluation | None:
        """What was said of an earlier trial of the same form; one that is being judged right now is waited for."""
        names = self._index.same.get(trial.form, ())
        for name in names[: names.index(trial.id)] if trial.id in names else names:
            other = self._await(name)
            verdict = other.evaluation if other and other.form == trial.form and not other.stale else None
            if verdict and verdict.cacheable:
                return _taken_over(verdict, verdict.evidence.repeat or Repeat(of=name))
        return None

    def _await(self, name: str) -> Trial | None:
        """A trial, once this process is not judging it any more."""
        while (trial := self._index.trials.get(name)) and not is_finished(trial) and self.claims.held_here(name):
            self._changed.wait()
        return trial

    @locked
    def said_of_code(self, trial: Trial, code: str) -> Evaluation | None:
        """What was said of a trial with the same tunables and code; one that is being judged is waited for."""
        if not code:
            return None
        asked = self._codes.setdefault(code, [])
        for name in [name for name in asked if name != trial.id]:
            self._await(name)
        asked.append(trial.id)
        tunables = fingerprint.declarations(trial.kernel) if trial.kernel else []
        for name, other in sorted(self._index.trials.items()):
            verdict = None if other.stale else other.evaluation
            if not (verdict and verdict.cacheable and verdict.evidence.artefact == code and other.kernel):
                continue
            if fingerprint.declarations(other.kernel) == tunables:
                origin = verdict.evidence.repeat
                return _taken_over(verdict, Repeat(of=origin.of if origin else name, compiled=True))
        return None

    @locked
    def trial_at(self, trial: str, commit: str) -> Trial:
        """A trial as one commit of its branch has it, whatever its verdict holds for. Raises LineageError."""
        return self._index.branches.load(trial, commit)

    def branch_of(self, trial: str) -> str:
        """The branch's short name."""
        return f"{self.problem}/{self.run}/{trial}"

    @locked
    def notes(self) -> tuple[Note, ...]:
        """What was learnt so far."""
        head = self.store.ref(f"{self._side}notes")
        if head is None:
            return ()
        if head != self._notes[0]:
            self._notes = head, schema.load("notes", self.store.read(f"{head}:notes.json"), tuple)
        return self._notes[1]

    @locked
    def current_notes(self) -> tuple[Note, ...]:
        """What was learnt so far, as a round begins with it: what later trials contradict is refuted."""
        return lessons.refute_contradicted(self.notes(), self.last_population, self._index.at, self.trial_at)

    @locked
    def begin_round(self) -> Round:
        """Begin a round: what it knows is what is known now. BudgetError where a recording has no more of them."""
        if self._turns and self._rounds >= self._turns.rounds:
            raise BudgetError(f"the recording has {self._rounds} rounds")
        self._rounds += 1
        name = f"{self._session}.{self._rounds}"
        with self._turn(f"round {name}"):
            self._add_step(RoundStep(name), message(f"round {name}", "", {}))
        population = self.last_population
        self._begun[len(population.trials)] += 1
        return Round(name, population, self.current_notes(), self._begun[len(population.trials)] - 1)

    @locked
    def select(self, selection: Selection, round_name: str = "") -> None:
        """Keep a selection, before it is acted on."""
        base, reference, rationale = selection.base.id, selection.reference.id, redact(selection.rationale)
        text = message(f"select {base} with {reference}", rationale, {})
        self._add_step(RoundStep(round_name, base, reference, rationale), text)

    @locked
    def dispatch(
        self, drafts: Sequence[Trial], plan: Plan | None = None, cause: str = "", cost: Cost = NOTHING
    ) -> tuple[Trial, ...]:
        """Give ids to experiments and keep the plan they come from, in one transaction; they are claimed.

        `cause`: the round's name, or the trial that is repaired. `cost`: of the selection and the plan; the experiments
        share it. A plan without a draft is kept, too. A replay gives ids to as many as the recorded run did.
        """
        if self._turns:
            drafts = drafts[: len(self._turns.ids(cause))]
            plan = plan if drafts or self._turns.has_step(f"ids for {cause}") else None
        if not (drafts or plan):
            return ()
        with self._turn(f"ids for {cause}"):
            for _ in range(TRIES):
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
        raise LineageError(f"{self.store.path}: no id could be taken in {TRIES} tries")

    def _claimed_ids(self, cause: str, count: int) -> Sequence[str]:
        """Ids that nobody uses, or in a replay those that were given then."""
        if not self._turns:
            return self._free_ids(count)
        ids = self._turns.ids(cause)[:count]
        if not all(map(self.claims.acquire, ids)):
            raise LineageError(f"{self.store.path}: another process replays run {self.run}; name another with run=")
        return ids

    @locked
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

    @locked
    def evaluate(self, trial: Trial, label: str = "evaluated") -> None:
        """Commit a verdict on top of the kernel it judges, also where that branch has grown by another verdict.

        Where a person has removed the branch or put another kernel on it, the verdict is about nothing that is there:
        it is left out, which is logged. Raises LineageError.
        """
        assert trial.evaluation is not None
        verdict, ref = trial.evaluation.verdict.value, f"{self._heads}{trial.id}"
        with self._turn(f"{trial.id} {verdict}"):
            for _ in range(TRIES):
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
                raise LineageError(f"{self.store.path}: {self.branch_of(trial.id)} was moved {TRIES} times meanwhile")
        self.release(trial)

    @locked
    def release(self, trial: Trial) -> None:
        """Give the claim on a trial back, finished or not; whoever waits for it is woken."""
        self.claims.release(trial.id)
        self._changed.notify_all()

    @locked
    def record(self, call: Call) -> None:
        """Keep a model call, before its answer is used."""
        body = call.error or call.answer[:200]
        text = message(f"{call.stage}: {call.model}", body, {"Cost-usd": f"{call.cost.usd:.6f}"})
        self._append("calls", {"call.json": schema.dump("call", call)}, text)

    def _ids_to_try(self) -> Iterator[str]:
        """One free id after the other, each claimed; whoever asks for the next one could not use the last."""
        for _ in range(TRIES):
            name = self._free_ids(1)[0]
            yield name
            self.claims.release(name)
            self._index.refresh()

    def _free_ids(self, count: int) -> Sequence[str]:
        """Ids above those that branches and open ids of the run have, readable or not; they are claimed."""
        damaged = (ref.rpartition("/")[2] for ref in self.store.damaged if ref.startswith((self._heads, self._side)))
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
        """Keep a step of a round, with its plan and experiments; empty where somebody else has taken one of the ids."""
        files = {"round.json": schema.dump("round", step)}
        files |= {"plan.json": schema.dump("plan", plan)} if plan else {}
        files |= {"trials.json": schema.dump("trials", tuple(trials))} if plan or trials else {}
        return self._append("rounds", files, text, taken, step=(step, plan))

    def _append(
        self,
        chain: str,
        files: Mapping[str, bytes],
        text: str,
        others: Sequence[Ref] = (),
        after: str = "",
        step: tuple[RoundStep, Plan | None] | None = None,
    ) -> str:
        """Grow a chain by one commit, and change others with it. The commit; empty when one was not as expected.

        after: the chain's end that the files were made from (`ZERO` for none); empty where it has another one by now.
        """
        ref = f"{self._side}{chain}"
        for _ in range(TRIES):
            head = after or self.store.ref(ref) or ZERO
            if commit := self._commit((ref, THIS, head), files, [head] if head != ZERO else [], text, others):
                if step:
                    self._index.grow_rounds(head, commit, *step)
                return commit
            if after or (others and (self.store.ref(ref) or ZERO) == head):
                return ""
        raise LineageError(f"{self.store.path}: {ref} could not be moved in {TRIES} tries")

    def _commit(
        self, ref: Ref, files: Mapping[str, bytes | str], parents: Sequence[str], text: str, others: Sequence[Ref] = ()
    ) -> str:
        """Make a commit, and change a ref and others with it; empty where one of them was not as expected."""
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


def _taken_over(verdict: Evaluation, origin: Repeat) -> Evaluation:
    """A verdict as that on a repeat: without what was said beside other trials."""
    about_neighbours: dict[str, Any] = {"against": (), "claim": None, "renewed": None, "unconfirmed": ""}
    return replace(verdict.with_evidence(repeat=origin, **about_neighbours), wall_s=0.0)
