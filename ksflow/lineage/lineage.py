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
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ksflow.errors import ConfigError, LineageError, pluralize
from ksflow.kernels.source import fingerprint
from ksflow.lineage.locks import Turns
from ksflow.lineage.record import ANNOTATION, EXPLANATION, message
from ksflow.lineage.refs import ZERO
from ksflow.lineage.store import THIS
from ksflow.lineage.trial_log import NOTHING, TRIES, Recorded, TrialLog, locked
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
    Proof,
    Trial,
    by_number,
    schema,
)
from ksflow.redaction import redact

_LOG = logging.getLogger("ksflow.lineage")
_IN_USE = "session"  # what every process with an open session claims beside the others


class Lineage(TrialLog):
    """One run of one problem in one repository. `clock` gives the commits' dates (seconds since 1970)."""

    @locked
    def expect(self, key: Key) -> None:
        """From now on a verdict under another key is stale. Without this every verdict holds."""
        self._index.approved = frozenset(self.approvals())
        self._index.expect(key)

    @locked
    def expect_as_recorded(self) -> None:
        """From now on a verdict is stale that was made under another key than the newest commit's: for looking only."""
        judged = [trial.id for trial in self.all_trials() if trial.evaluation]
        if not judged:
            return
        dates = self.judged_at(judged)
        name = max(judged, key=lambda name: (dates[name], by_number(name)))
        newest = self.trial_at(name, self._index.at[name]).evaluation
        if newest:
            self.expect(Key(newest.problem, newest.judge, newest.target))

    @locked
    def all_trials(self) -> tuple[Trial, ...]:
        """Every trial that has a branch, finished or not, as it stands now."""
        self._index.refresh()
        return self._index.all_trials()

    @locked
    def claim_unfinished(self, *origins: Origin) -> tuple[Trial, ...]:
        """What an earlier or a killed run left undone, claimed for this one: to be written, or to be evaluated.

        Of some origins, or of any.
        """
        others = [
            name
            for name, trial in self._index.unfinished_trials(lately=True).items()
            if not self.claims.held_here(name) and (not origins or trial.origin in origins)
        ]
        for name, commit in self._index.open.items():
            if name in self._index.at:  # left by a process that was killed when it had written the branch
                self.store.move([(f"{self._side}open/{name}", ZERO, commit)])
        mine = [name for name in others if self.claims.acquire(name)]
        undone = self._index.unfinished_trials() if mine else {}  # again: it may have been finished before the claim
        for name in mine:
            if name not in undone:
                self.claims.release(name)
        return tuple(undone[name] for name in mine if name in undone)

    @locked
    def reclaim(self, trials: Iterable[Trial]) -> tuple[Trial, ...]:
        """Those that no other process is at work on, claimed and without their verdicts: to be judged once more."""
        return tuple(replace(t, evaluation=None, stale="") for t in trials if self.claims.acquire(t.id))

    @locked
    def others_at_work(self) -> bool:
        """Whether another process judges seeds of this run, or what has become stale."""
        self._index.refresh()
        awaited = (trial.id for trial in self._index.trials.values() if trial.stale or trial.origin is Origin.SEED)
        return any(map(self.claims.held_elsewhere, awaited))

    @locked
    def count_unfinished(self) -> tuple[int, bool]:
        """How many trials are not finished, and whether another process is at work on one of them."""
        left = self._index.unfinished_trials()
        return len(left), any(map(self.claims.held_elsewhere, left))

    @locked
    def relocate(self, run: str = "") -> int:
        """Give the run another name, or without a name delete its refs; return how many refs there were.

        Raises LineageError where the run is in use, where the name is taken, or where a ref changed meanwhile.
        """
        if self.claims.held_elsewhere(_IN_USE) or self.count_unfinished()[1]:
            raise LineageError(f"{self.problem}/{self.run} is in use: end the process that works on it first")
        refs = self._all_refs()
        changes = [(name, ZERO, commit) for name, commit in refs.items()]
        if run:
            before, after = f"/{self.problem}/{self.run}/", f"/{self.problem}/{run}/"
            if self.store.refs(*(prefix.replace(before, after) for prefix in (self._heads, self._side))):
                raise LineageError(f"{self.problem}/{run} is there already: name another one with to=")
            changes += [(name.replace(before, after, 1), commit, ZERO) for name, commit in refs.items()]
        if not self.store.move(changes):
            raise LineageError(f"{self.problem}/{self.run} changed meanwhile: try again")
        return len(refs)

    def bundle(self, file: Path) -> None:
        """Write the run's refs and all their history to a file that `git clone` and `git fetch` read. LineageError."""
        self.store.bundle(file, self._all_refs())

    def _all_refs(self) -> dict[str, str]:
        return self.store.refs(self._heads, self._side, f"refs/tags/approved/{self.problem}/{self.run}/")

    def commit_of(self, trial: str) -> str:
        """The commit of a trial's newest verdict, or of its kernel."""
        return self._index.at[trial]

    @locked
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

    @locked
    def approvals(self) -> dict[str, Approval]:
        """Trial id -> what a person said of it."""
        prefix, approvals = f"approved/{self.problem}/{self.run}/", {}
        for tag, commit, by, date, body in self.store.tags(prefix):
            name = tag.removeprefix(prefix)
            note = " ".join(line.strip() for line in body.splitlines() if line.startswith("    "))
            head = self.store.ref(f"{self._heads}{name}")
            current = head is not None and commit in (head, self._index.branches.judged_commit(head))
            approvals[name] = Approval(by, note, commit, date, current)
        return approvals

    @locked
    def explanation(self, trial: str) -> Explanation | None:
        """What is kept of a trial's features; None where nothing is. What cannot be read counts as nothing, logged."""
        try:
            return schema.load("explanation", self.store.read(self._explained(trial)[EXPLANATION]), Explanation)
        except KeyError:
            return None
        except LineageError as error:
            _LOG.warning("%s: its explanation is left out: %s", self.branch_of(trial), error)
            return None

    @locked
    def diff(self, first: str, second: str) -> str:
        """How the kernel's files changed from one trial to another."""
        return self.store.diff(self._index.at[first], self._index.at[second], RESERVED_NAMES)

    @property
    def prefixes(self) -> tuple[str, str]:
        """Where the run's refs are."""
        return self._heads, self._side

    @locked
    def runs(self) -> str:
        """The runs of every problem in this repository, as text."""
        return ", ".join(map("/".join, self.store.runs())) or "none"

    @property
    @locked
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
    @locked
    def session_start(self) -> tuple[int, str]:
        """When the newest session was opened, in seconds since 1970, and the highest id that was used by then; 0 and
        nothing where there was none, or where that is not on record."""
        head = self.store.ref(f"{self._side}sessions")
        return (self.store.header(head).date, self.store.trailer(head, "After")) if head else (0, "")

    @property
    @locked
    def sessions(self) -> tuple[int, ...]:
        """When each session was opened, in seconds since 1970, in their order."""
        head = self.store.ref(f"{self._side}sessions")
        opened = reversed(self.store.list_ancestors(head)) if head else ()
        return tuple(self.store.header(name).date for name in opened)

    @property
    @locked
    def identity(self) -> str:
        """Sixteen letters and digits that no other run has: of the commit of its first session. LineageError."""
        head = self.store.ref(f"{self._side}sessions")
        if head is None:
            raise LineageError(f"{self.problem}/{self.run} has no session yet: it has no identity before one is opened")
        return self.store.list_ancestors(head)[-1][:16]

    @property
    @locked
    def digested_count(self) -> int:
        """From how many trials the notes were learnt."""
        head = self.store.ref(f"{self._side}notes")
        return int(self.store.trailer(head, "Trials") or 0) if head else 0

    @locked
    def total_cost(self) -> Cost:
        """What all model calls on record have cost: of every session and every process of the run.

        Every figure about the whole run comes from here. A call that cannot be read is left out, which is logged.
        """
        return sum(self.costs().values(), NOTHING)

    @locked
    def costs(self) -> dict[tuple[str, str], Cost]:
        """The same by stage and model."""
        head = self.store.ref(f"{self._side}calls")
        if head and head != self._calls_read:
            for commit in self.store.list_ancestors(head, self._calls_read):
                try:
                    call: Call = schema.load("call", self.store.read(f"{commit}:call.json"), Call)
                    self._costs[call.stage.partition("=")[0], call.model] += call.cost
                except LineageError as error:
                    _LOG.warning("the cost of a model call is left out: %s", error)
            self._calls_read = head
        return dict(self._costs)

    @locked
    def judged_at(self, trials: Iterable[str]) -> dict[str, int]:
        """When the newest verdict of each trial, or its kernel, was committed, in seconds since 1970."""
        heads = {name: self._index.at[name] for name in trials}
        new = [head for head in heads.values() if head not in self._dates]
        with self.store.read_ahead(new):
            self._dates |= {head: self.store.header(head).date for head in new}
        return {name: self._dates[head] for name, head in heads.items()}

    @locked
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

    @locked
    def open_session(
        self, settings: str, initial_notes: tuple[Note, ...] = (), again: Callable[[int], Recorded] | None = None
    ) -> Turns | None:
        """Open a session with the settings and the notes it is made with; `again` gives those of a recorded one.

        Returns that one. The notes are `initial_notes` from then on.
        """
        self.claims.share(_IN_USE)
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

    @locked
    def explain(self, trial: Trial, explanation: Explanation) -> None:
        """Commit an explanation on top of the kernel that it is of. LineageError where that is gone."""
        counts = Counter(feature.state.value for feature in explanation.features)
        sums = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        trailers = {"Trial": trial.id, ANNOTATION: "explanation"}
        text, ref = message(f"{trial.id} explained: {sums}", explanation.summary, trailers), f"{self._heads}{trial.id}"
        for _ in range(TRIES):
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
        raise LineageError(f"{self.store.path}: {self.branch_of(trial.id)} was moved {TRIES} times meanwhile")

    @locked
    def record_verdict(self, trial: Trial, evaluation: Evaluation) -> None:
        """Keep what the judge said when it was asked about a kernel again, before it is acted on."""
        text = message(f"{trial.id} again: {evaluation.verdict.value}", evaluation.reason, {"Trial": trial.id})
        self._append("verdicts", {"evaluation.json": schema.dump("evaluation", evaluation)}, text)

    @locked
    def record_proof(self, proof: Proof) -> None:
        """Keep what kernels, this run's among them, did for a whole model."""
        ratios = "; ".join(f"{way.name} {way.ratio}" for way in proof.ways) or "no result"
        text = message(f"{proof.model} with kernels: {ratios}", "\n".join(proof.remarks), {})
        self._append("proofs", {"proof.json": schema.dump("proof", proof)}, text)

    @locked
    def proof(self) -> tuple[Proof, int] | None:
        """The newest of them, and when it was made, in seconds since 1970. LineageError."""
        head = self.store.ref(f"{self._side}proofs")
        if head is None:
            return None
        return schema.load("proof", self.store.read(f"{head}:proof.json"), Proof), self.store.header(head).date

    @locked
    def learn(
        self, notes: tuple[Note, ...], trials: int = 0, began: tuple[Note, ...] | None = None
    ) -> tuple[Note, ...]:
        """Keep what a digest made of the notes that it `began` with (those of now, where that is not said), learnt from
        so many trials; all notes as they are kept.

        New ones cite their trials at the commits that are the newest now; old ones that were contradicted are refuted;
        what others have learnt meanwhile stays.
        """
        with self._turn(f"notes of {trials}"):
            for _ in range(TRIES):
                head, before = self.store.ref(f"{self._side}notes") or ZERO, self.notes()
                after = lessons.refute_contradicted(before, self.last_population, self._index.at, self.trial_at)
                old = {**dict(zip(before, after, strict=True)), **{note: note for note in after}}
                merged = lessons.merge_notes(notes, after if began is None else began, after)
                learnt = tuple(old.get(note) or lessons.cite_commits(note, self._index.at, before) for note in merged)
                text = "\n\n".join(f"## {note.title}\n\n{note.text}" for note in learnt)
                files = {"notes.json": schema.dump("notes", learnt), "notes.md": text.encode()}
                subject = message(pluralize(len(learnt), "note"), "", {"Trials": str(trials)})
                if self._append("notes", files, subject, after=head):
                    return learnt
        raise LineageError(f"{self.store.path}: the notes could not be kept in {TRIES} tries")

    @locked
    def release_all(self) -> None:
        """Give every claim back: whoever comes next may take up what is unfinished."""
        self.claims.release_all()

    @locked
    def close(self) -> None:
        """Pack, and end git's helper processes."""
        with suppress(LineageError):  # packing is a comfort; whatever is wrong was said by the read that met it
            self.store.maintain(force=True)
        self.store.close()
