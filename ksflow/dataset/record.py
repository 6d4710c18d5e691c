"""A run on record as the export of training data sees it: who was asked what, and what became of it.

An index without texts: prompts, answers and kernels are read again when a row is made of them, so the memory that a
long lineage takes is some hundred bytes for each call and trial. What it does not do: say what an outcome is worth.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from ksflow.dataset.licences import joined, named
from ksflow.lineage.branches import Branches
from ksflow.lineage.history import Chronicle, Kind, Place
from ksflow.lineage.store import Store
from ksflow.records import Call, Evaluation, Key, Note, Origin, Timing, Trial, base_of, schema

Clean = Callable[[str], str]
_KEPT = ("against", "claim", "repeat")
_NEEDLE = 80
_RECENT = 64
"""Kernels that are at hand: one is part of several pairs."""
_GAVE_UP = "malformed answer after"
"""In the reason why there is no kernel: the last answer was no better than those before it."""


@dataclass(frozen=True)
class Result:
    """What became of a trial."""

    trial: Trial
    """Without its texts; the evaluation has verdict, score and ratios."""
    commit: str
    report: str
    """How the writer's report begins."""
    licence: str
    """That the kernel's texts name; empty where they name none."""


@dataclass(frozen=True)
class Asked:
    """A model call."""

    commit: str
    stage: str
    """Without its variant: writer."""
    model: str
    about: str
    prompt: str
    """Digest of the messages."""
    answer: str
    """Digest of the answer; empty where there is none."""
    question: str
    """Digest of the messages without what a repeated question adds: why the answer before was refused."""
    first: str
    """The commit of the call that first asked it; another than `commit` where it is asked again."""
    malformed: bool = False
    used: bool = False
    """The run went on with this answer."""

    @property
    def again(self) -> bool:
        """Whether it is the same question as before, with the reason why the answer was refused."""
        return self.first != self.commit


@dataclass
class Round:
    """What came of a round."""

    chosen: bool = False
    trials: tuple[str, ...] = ()
    """The experiments that were dispatched."""


@dataclass
class Run:
    """The index of one run."""

    problem: str
    name: str
    results: dict[str, Result] = field(default_factory=dict)
    rounds: dict[str, Round] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def base(self, trial: Trial) -> Trial | None:
        """The kernel that a trial's experiment starts from: for a repair, the first attempt's."""
        return base_of(trial, self.trials)

    @cached_property
    def trials(self) -> dict[str, Trial]:
        """Id -> trial."""
        return {name: result.trial for name, result in self.results.items()}

    @cached_property
    def licences(self) -> dict[str, frozenset[str]]:
        """Trial -> the licences of its kernel and of all that it was made from, the reference that its writer read
        included. `licences.UNKNOWN` stands for a kernel that comes from nowhere and names none.
        """
        found: dict[str, frozenset[str]] = {}
        for name in sorted(self.results):
            own, parents = self.results[name].licence, self.results[name].trial.parents
            inherited = frozenset[str]().union(*(found[parent] for parent in parents if parent in found))
            found[name] = inherited | {own} if own or not inherited else inherited
        return found

    def outcomes(self, about: str) -> tuple[Trial, ...]:
        """The trials that a call led to: its own, or a round's experiments and their repairs."""
        if not about.startswith("round "):
            return (self.results[about].trial,) if about in self.results else ()
        found = self.rounds.get(about.removeprefix("round "))
        names = list(found.trials if found else ())
        for name in names:  # grows on the way: repairs may be repaired
            names += self.repairs.get(name, [])
        return tuple(self.results[name].trial for name in names if name in self.results)

    @cached_property
    def repairs(self) -> dict[str, list[str]]:
        """Failed attempt -> its repairs."""
        found: dict[str, list[str]] = defaultdict(list)
        for trial in (result.trial for result in self.results.values()):
            if trial.origin is Origin.REPAIR and trial.parents and trial.parents[0] < trial.id:
                found[trial.parents[0]].append(trial.id)
        return found


def runs(store: Store) -> list[tuple[str, str]]:
    """(problem, run) of everything in a repository, sorted."""
    parts = (name.split("/") for name in store.refs("refs/heads/"))
    return sorted({(part[2], part[3]) for part in parts if len(part) == 5})


def digest(*texts: str) -> str:
    """Names texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:24]


class Reader:
    """Reads one run of a repository. `clean` strikes out what must not leave the machine."""

    def __init__(self, store: Store, problem: str, run: str, clean: Clean) -> None:
        self.store, self.problem, self.run, self.clean = store, problem, run, clean
        self._chronicle = Chronicle(store, problem, run)
        self._branches = Branches(store, f"{problem}/{run}/")
        self._heads = dict(sorted(self._named(store.refs(f"refs/heads/{problem}/{run}/"))))
        self._calls = self._chronicle.of(Kind.CALLS)
        self.kernel = lru_cache(_RECENT)(self._kernel)
        """A trial's id -> its kernel's language and files, cleaned."""

    def __len__(self) -> int:
        """Steps that `index` takes."""
        return len(self._heads) + len(self._calls)

    def index(self, step: Callable[[], None]) -> Run:
        """Read all of it once; `step` is told of each trial and call. Raises LineageError."""
        made = Run(self.problem, self.run)
        newest = self._chronicle.newest_verdict()  # machines are kept apart, not ruled out
        self._branches.key = Key(newest.problem, newest.judge) if newest else None
        for name, commit in self._heads.items():
            made.results[name] = self._result(name, commit)
            step()
        made.rounds = self._rounds()
        made.asked = self._asked(made, step)
        return made

    def call(self, commit: str) -> Call:
        """A model call, cleaned."""
        call: Call = schema.load("call", self.store.read(f"{commit}:call.json"), Call)
        messages = tuple({key: self.clean(text) for key, text in message.items()} for message in call.messages)
        return replace(call, messages=messages, answer=self.clean(call.answer))

    # -- inside ----------------------------------------------------------------------------------

    def _kernel(self, trial: str) -> tuple[str, Mapping[str, str]]:
        kernel = self._branches.load(trial, self._heads[trial]).kernel
        assert kernel is not None
        return kernel.language, {name: self.clean(text) for name, text in kernel.files.items()}

    @staticmethod
    def _named(refs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        return ((ref.rpartition("/")[2], commit) for ref, commit in refs.items())

    def _result(self, name: str, commit: str) -> Result:
        trial = self._branches.holding(self._branches.load(name, commit), commit)
        kernel = trial.kernel
        texts = kernel.files.values() if kernel else ()
        licence = joined(filter(None, map(named, texts)))
        report = self.clean(kernel.report).strip()[:_NEEDLE].strip() if kernel else ""
        said = _slim(trial.evaluation) if trial.evaluation else None
        return Result(replace(trial, kernel=None, experiment=None, evaluation=said), commit, report, licence)

    def _rounds(self) -> dict[str, Round]:
        found: dict[str, Round] = {}
        for commit in self._chronicle.of(Kind.ROUNDS):
            if name := commit.trailer("Round"):
                made = found.setdefault(name, Round())
                made.chosen = made.chosen or bool(commit.trailer("Base"))
            if (cause := commit.trailer("Cause")) in found:
                data = self.store.read(f"{commit.name}:trials.json")
                trials: tuple[Trial, ...] = schema.load("trials", data, tuple)
                found[cause].trials = tuple(trial.id for trial in trials)
        return found

    def _asked(self, run: Run, step: Callable[[], None]) -> list[Asked]:
        """The calls in their order."""
        calls: list[Asked] = []
        questions: dict[tuple[str, str], tuple[int, str, str]] = {}
        last: dict[tuple[str, str], int] = {}
        learnt = [(commit.place, commit.name) for commit in self._chronicle.of(Kind.NOTES)]
        for place, _, commit, _, _ in self._calls:
            call = self.call(commit)
            stage = call.stage.partition("=")[0]
            group = (call.about, stage)
            again = group in questions and _asks_again(call, *questions[group][:2])
            if group in last:  # an answer that had to be asked for again is bad, or lost
                calls[last[group]] = replace(calls[last[group]], malformed=again, used=False)
            if not again:
                questions[group] = (*_question(call), commit)
            answer = "" if call.error or call.cut or not call.answer else digest(call.answer)
            used = bool(answer) and self._went_on(run, stage, call, (place, learnt))
            last[group] = len(calls)
            prompt = digest(*(text for message in call.messages for text in message.values()))
            question = questions[group][1:]
            calls.append(Asked(commit, stage, call.model, call.about, prompt, answer, *question, False, used))
            step()
        for (about, _), number in last.items():
            if about in run.results and _GAVE_UP in run.results[about].trial.failure:
                calls[number] = replace(calls[number], malformed=True)
        return calls

    def _went_on(self, run: Run, stage: str, call: Call, notes: tuple[Place, list[tuple[Place, str]]]) -> bool:
        """Whether the record holds what the answer says."""
        if stage == "writer":
            result = run.results.get(call.about)
            return bool(result and result.report and _says(call.answer, result.report))
        found = run.rounds.get(call.about.removeprefix("round "), Round())
        if stage == "digester":
            here, learnt = notes
            after = next((commit for place, commit in learnt if place[0] == here[0] and place > here), "")
            return bool(after) and any(_says(call.answer, note.title) for note in self._notes(after))
        return found.chosen if stage == "selector" else bool(found.trials)

    def _notes(self, commit: str) -> tuple[Note, ...]:
        found: tuple[Note, ...] = schema.load("notes", self.store.read(f"{commit}:notes.json"), tuple)
        return found


def _question(call: Call) -> tuple[int, str]:
    """The length of the last message, and a digest of all of them."""
    *before, last = (message["content"] for message in call.messages)
    return len(last), digest(*before, last)


def _asks_again(call: Call, length: int, question: str) -> bool:
    """Whether it is that question with something added."""
    *before, last = (message["content"] for message in call.messages)
    return len(last) > length and digest(*before, last[:length]) == question


def _says(answer: str, text: str) -> bool:
    """Plainly, or as JSON has it."""
    return text in answer or any(json.dumps(text, ensure_ascii=ascii_)[1:-1] in answer for ascii_ in (True, False))


def _slim(said: Evaluation) -> Evaluation:
    timings = tuple(Timing(timing.case, timing.us) for timing in said.timings)
    return replace(said, timings=timings, evidence={key: said.evidence[key] for key in _KEPT if key in said.evidence})
