"""A run on record as the data set sees it: who was asked what, and what became of it.

An index without texts: prompts, answers and kernels are read again when a row is made of them, so the memory that a
long lineage takes is some hundred bytes for each call and trial. What it does not do: say what an outcome is worth.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from ksflow.kernels.problem.licences import join_licences, parse_licence
from ksflow.lineage.history import Commit, CommitKind, Order, RoundSnapshot, RunReader
from ksflow.lineage.store import Store
from ksflow.records import Call, Evidence, Key, Origin, Scale, Timing, Trial, base_of, digest, schema

Clean = Callable[[str], str]
_NEEDLE = 80
_RECENT = 64  # kernels that are at hand: one is part of several pairs
_GAVE_UP = "malformed answer after"
"""In the reason why there is no kernel: the last answer was no better than those before it."""


@dataclass(frozen=True)
class TrialResult:
    """What became of a trial."""

    trial: Trial  # without its texts; the evaluation has verdict, score and ratios
    commit: str
    report: str  # how the writer's report begins
    licence: str  # that the kernel's texts name; empty where they name none


@dataclass(frozen=True)
class RecordedCall:
    """A model call, without its texts."""

    commit: str
    stage: str  # without its variant: writer
    model: str
    about: str
    prompt: str  # digest of the messages
    answer: str  # digest of the answer; empty where there is none
    question: str  # digest of the messages without what a repeated question adds: why the answer before was refused
    first: str  # the commit of the call that first asked it; another than `commit` where it is asked again
    malformed: bool = False
    used: bool = False  # the run went on with this answer


@dataclass
class DatasetIndex:
    """What became of the trials, rounds and model calls of one run."""

    problem: str
    name: str
    results: dict[str, TrialResult] = field(default_factory=dict)
    rounds: dict[str, RoundSnapshot] = field(default_factory=dict)
    calls: list[RecordedCall] = field(default_factory=list)

    def base(self, trial: Trial) -> Trial | None:
        """The kernel that a trial's experiment starts from: for a repair, the first attempt's."""
        return base_of(trial, self.trials)

    @cached_property
    def trials(self) -> dict[str, Trial]:
        """Id -> trial."""
        return {name: result.trial for name, result in self.results.items()}

    @cached_property
    def scale(self) -> Scale:
        """How fast the accepted kernels are."""
        return Scale.from_trials(self.trials.values())

    @cached_property
    def licences(self) -> dict[str, frozenset[str]]:
        """Trial -> the licences of its kernel and of all that it was made from; `licences.UNKNOWN` for a kernel that
        comes from nowhere and names none.
        """
        licences: dict[str, frozenset[str]] = {}
        for name in sorted(self.results):
            own, parents = self.results[name].licence, self.results[name].trial.parents
            inherited = frozenset[str]().union(*(licences[parent] for parent in parents if parent in licences))
            licences[name] = inherited | {own} if own or not inherited else inherited
        return licences

    def outcomes(self, about: str) -> tuple[Trial, ...]:
        """Return the trials that a call led to: its own, or a round's experiments and their repairs."""
        if not about.startswith("round "):
            return (self.results[about].trial,) if about in self.results else ()
        snapshot = self.rounds.get(about.removeprefix("round "))
        names = [trial.id for trial in snapshot.trials] if snapshot else []
        for name in names:  # grows on the way: repairs may be repaired
            names += self.repairs.get(name, [])
        return tuple(self.results[name].trial for name in names if name in self.results)

    @cached_property
    def repairs(self) -> dict[str, list[str]]:
        """Failed attempt -> its repairs."""
        repairs: dict[str, list[str]] = defaultdict(list)
        for trial in (result.trial for result in self.results.values()):
            if trial.origin is Origin.REPAIR and trial.parents and trial.parents[0] < trial.id:
                repairs[trial.parents[0]].append(trial.id)
        return repairs


class IndexReader:
    """Reads one run of a repository. `clean` strikes out what must not leave the machine."""

    def __init__(self, store: Store, problem: str, run: str, clean: Clean) -> None:
        self.store, self.problem, self.run, self.clean = store, problem, run, clean
        self._reader = RunReader(store, problem, run, self._slim)
        self._calls = self._reader.commits(CommitKind.CALLS)
        self._reports: dict[str, tuple[str, str]] = {}
        """Trial -> how its report begins, and the licence that its texts name."""
        self.kernel = lru_cache(_RECENT)(self._kernel)  # a trial's id -> its kernel's language and files, cleaned

    def index(self) -> DatasetIndex:
        """Read the run once, and return its index. Raises LineageError."""
        index = DatasetIndex(self.problem, self.run)
        key = self._reader.read().key
        for trial in self._reader.trials(Key(key.problem, key.judge) if key else None):  # machines are kept apart
            report, licence = self._reports[trial.id]
            index.results[trial.id] = TrialResult(trial, self._reader.heads[trial.id], report, licence)
        index.rounds = self._reader.rounds
        index.calls = self._recorded_calls(index)
        return index

    def call(self, commit: str) -> Call:
        """Return a model call with its texts, cleaned. Raises LineageError."""
        call: Call = schema.load("call", self.store.read(f"{commit}:call.json"), Call)
        messages = tuple({key: self.clean(text) for key, text in message.items()} for message in call.messages)
        return replace(call, messages=messages, answer=self.clean(call.answer))

    def _kernel(self, trial: str) -> tuple[str, Mapping[str, str]]:
        kernel = self._reader.branches.load(trial, self._reader.heads[trial]).kernel
        assert kernel is not None
        return kernel.language, {name: self.clean(text) for name, text in kernel.files.items()}

    def _slim(self, trial: Trial) -> Trial:
        """A trial without its texts, which `_reports` takes what is needed of; its verdict without all but ratios."""
        kernel, evaluation = trial.kernel, trial.evaluation
        report = self.clean(kernel.report).strip()[:_NEEDLE].strip() if kernel else ""
        self._reports[trial.id] = (
            report,
            join_licences(filter(None, map(parse_licence, kernel.files.values()))) if kernel else "",
        )
        if evaluation:
            timings = tuple(Timing(timing.case, timing.us) for timing in evaluation.timings)
            full = evaluation.evidence
            evidence = Evidence(against=full.against, claim=full.claim, repeat=full.repeat)
            evaluation = replace(evaluation, timings=timings, evidence=evidence)
        return replace(trial, kernel=None, experiment=None, evaluation=evaluation)

    def _recorded_calls(self, run: DatasetIndex) -> list[RecordedCall]:
        calls: list[RecordedCall] = []
        questions: dict[tuple[str, str], tuple[int, str, str]] = {}
        """Of each call and stage: the last message's length, the digest of all messages, and the first commit."""
        last: dict[tuple[str, str], int] = {}
        learnt = self._reader.commits(CommitKind.NOTES)
        for commit in self._calls:
            call = self.call(commit.name)
            stage = call.stage.partition("=")[0]
            group = (call.about, stage)
            *before, newest = (message["content"] for message in call.messages)
            length, question, first = questions.get(group, (len(newest), "", ""))
            again = len(newest) > length and digest(*before, newest[:length]) == question  # with something added
            if group in last:  # an answer that had to be asked for again is bad, or lost
                calls[last[group]] = replace(calls[last[group]], malformed=again, used=False)
            if not again:
                length, question, first = len(newest), digest(*before, newest), commit.name
                questions[group] = length, question, first
            answer = "" if call.error or call.cut or not call.answer else digest(call.answer)
            used = bool(answer) and self._was_used(run, stage, call, commit.order, learnt)
            last[group] = len(calls)
            prompt = digest(*(text for message in call.messages for text in message.values()))
            calls.append(
                RecordedCall(commit.name, stage, call.model, call.about, prompt, answer, question, first, False, used)
            )
        for (about, _), number in last.items():
            if about in run.results and _GAVE_UP in run.results[about].trial.failure:
                calls[number] = replace(calls[number], malformed=True)
        return calls

    def _was_used(self, run: DatasetIndex, stage: str, call: Call, order: Order, learnt: list[Commit]) -> bool:
        """Return whether the run went on with an answer, by what is on record."""
        if stage == "writer":
            result = run.results.get(call.about)
            return bool(result and result.report and _says(call.answer, result.report))
        if stage == "verifier":  # of several answers the last one
            return call.about in run.results and run.results[call.about].trial.review is not None
        snapshot = run.rounds.get(call.about.removeprefix("round "))
        if stage == "digester":
            after = next((c.name for c in learnt if c.order[0] == order[0] and c.order > order), "")
            notes = schema.load("notes", self.store.read(f"{after}:notes.json"), tuple) if after else ()
            return any(_says(call.answer, note.title) for note in notes)
        return bool(snapshot and (snapshot.selected if stage == "selector" else snapshot.trials))


def _says(answer: str, text: str) -> bool:
    """Return whether an answer has a text, plainly or as a JSON string."""
    return text in answer or any(json.dumps(text, ensure_ascii=ascii_)[1:-1] in answer for ascii_ in (True, False))
