"""Trial, and step of a round <-> the files of a commit, and its message.

A message reads well in `git log --oneline`, and its trailers are for tools. What a model wrote stands in it indented
and stripped of control characters, so it can pass for neither. A branch is read back as its trial: what the files of a
commit say, and which of its verdicts holds. The step of a round is `round.json`; beside it, where experiments were
given ids, are `trials.json` and, of a plan, `plan.json`.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, takewhile

from ksflow.errors import LineageError, strip_controls
from ksflow.kernels.languages import ENDINGS, detect_language
from ksflow.kernels.source import fingerprint
from ksflow.lineage.store import Store, trailer
from ksflow.records import FILE_NAME, RESERVED_NAMES, Evaluation, Kernel, Key, Origin, Plan, RoundStep, Trial, schema
from ksflow.redaction import redact

EXPLANATION = "explanation.json"
ANNOTATION = "Annotation"
"""The trailer of a commit that adds to what is known of a kernel, and says nothing of its verdict."""
_STEP = re.compile(r"\d+\.\d+\n?")
_DEEPEST = 100
_LOG = logging.getLogger("ksflow.lineage")


def as_commit(store: Store, trial: Trial, label: str) -> tuple[dict[str, bytes | str], str]:
    """A trial's commit: its files (blobs of the kernel's, the records of trial and verdict), and its message."""
    texts = trial.kernel.files if trial.kernel else {}
    blobs = {name: store.write("blob", text.encode()) for name, text in texts.items()}
    kernel = replace(trial.kernel, files=dict(blobs)) if trial.kernel else None
    stored = replace(trial, kernel=kernel, evaluation=None, stale="", failure=redact(trial.failure))
    judged = {"evaluation.json": schema.dump("evaluation", trial.evaluation)} if trial.evaluation else {}
    return {**blobs, "trial.json": schema.dump("trial", stored), **judged}, describe(trial, label)


def describe(trial: Trial, label: str) -> str:
    """A trial's commit message: reads well in `git log --oneline`, trailers for tools."""
    evaluation = trial.evaluation
    what = trial.experiment.description if trial.experiment else trial.name or trial.origin.value
    score = f" {evaluation.score_us:.4g} µs" if evaluation and evaluation.score_us else ""
    state = evaluation.verdict.value if evaluation else "failed" if trial.failure else label
    trailers = {
        "Trial": trial.id,
        "Base": trial.parents[0] if trial.parents else "",
        "Reference": trial.parents[-1] if trial.parents else "",
        "Verdict": evaluation.verdict.value if evaluation else "",
        "Score-us": f"{evaluation.score_us:.6g}" if evaluation and evaluation.score_us else "",
        "Target": evaluation.target if evaluation else "",
        "Cost-usd": f"{trial.cost.usd:.6f}",
    }
    body = trial.failure or (evaluation.reason if evaluation else "") or (trial.kernel.report if trial.kernel else "")
    prefix = "" if label in ("written", "evaluated") else f"{label}, "
    return message(f"{trial.id} {prefix}{state}{score}: {what}", body, trailers)


def message(subject: str, body: str, trailers: Mapping[str, str]) -> str:
    """A commit message. Text that a model wrote is indented, so it cannot pass for a trailer; a value has one line."""
    first = " ".join(strip_controls(subject).split())[:120]
    lines = [f"    {line}".rstrip() for line in strip_controls(body).splitlines()]
    tail = [f"{key}: {' '.join(strip_controls(value).split())}" for key, value in trailers.items() if value]
    parts = [first, "\n".join(lines)[:4000].rstrip(), "\n".join(tail)]
    return "\n\n".join(part for part in parts if part) + "\n"


def without_step(text: str) -> tuple[str, str]:
    """A message as it was before it was given its step, and the step; empty where there is none."""
    body, mark, step = text.rpartition("Step: ")
    if not mark or not _STEP.fullmatch(step):
        return text, ""
    return (body[:-1] if body.endswith("\n\n") else body), step.rstrip("\n")


class Branches:
    """Reads the branches below `refs/heads/<problem>/<run>/`. Under a key, verdicts with another one are stale."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self.key: Key | None = None
        self.explained: set[str] = set()  # the commits, of those that were read, with an explanation among their files

    def holding(self, trial: Trial, commit: str) -> Trial:
        """The trial with its newest verdict that holds under the key; where none does its last one, as stale."""
        return newest_holding(trial, self._earlier(trial, commit), self.key)

    def _earlier(self, trial: Trial, commit: str) -> Iterator[Trial]:
        """The trial as the commits below one of its branch have it, the newest first."""
        for before in self.own(trial.id, next(iter(self.store.header(commit).parents), "")):
            yield self.load(trial.id, before)

    def own(self, trial: str, commit: str) -> Iterator[str]:
        """A commit of a trial's branch and those below it, down to the one that wrote the trial's kernel."""
        return takewhile(lambda name: self.store.trailer(name, "Trial") == trial, self.store.line(commit))

    def judged_commit(self, commit: str) -> str:
        """The commit below the annotations on top of a branch: of its last verdict, or of its kernel."""
        while self.store.trailer(commit, ANNOTATION) and (parents := self.store.header(commit).parents):
            commit = parents[0]
        return commit

    def load(self, name: str, commit: str) -> Trial:
        """The trial as one commit of its branch has it. Raises LineageError."""
        try:
            entries = self.store.entries(commit)
            if EXPLANATION in entries:
                self.explained.add(commit)
            stored = None
            if "trial.json" in entries:
                stored = schema.load("trial", self.store.read(entries["trial.json"]), Trial)
            blobs = stored.kernel.files if stored and stored.kernel else {}
            if stored is None or stored.id != name or any(entries.get(k) != v for k, v in blobs.items()):
                return self._pushed(name, commit, entries)
            judged = entries.get("evaluation.json")
            evaluation = schema.load("evaluation", self.store.read(judged), Evaluation) if judged else None
            files = {name: self.store.read(blob).decode() for name, blob in blobs.items()}
            kernel = replace(stored.kernel, files=files) if stored.kernel else None
            return replace(stored, kernel=kernel, evaluation=evaluation)
        except (LineageError, ValueError) as error:
            raise LineageError(
                f"branch {self.prefix}{name} of {self.store.path} cannot be read: {error}; "
                f"mend it, or remove it with `git -C {self.store.path} branch -D {self.prefix}{name}`"
            ) from error

    def _pushed(self, name: str, commit: str, entries: Mapping[str, str]) -> Trial:
        """A branch that a person made: its text files are the kernel, its nearest ancestor with a trial the base.

        The first file in a kernel's language comes first; what cannot be a kernel's file is left out, and logged.
        """
        files = self._pushed_texts(name, entries)
        languages = {file: language for file, text in files.items() if (language := detect_language(file, text))}
        if not languages:
            raise ValueError(f"no kernel in it; a kernel's file ends in {' '.join(ENDINGS)}")
        main = next(iter(languages))
        files = {main: files[main], **files}
        base = self._ancestor(commit, name)
        return Trial(
            name,
            Origin.PUSH,
            (base,) if base else (),
            kernel=(kernel := Kernel(languages[main], files)),
            name=name,
            form=fingerprint.source_fingerprint(kernel),
        )

    def _pushed_texts(self, name: str, entries: Mapping[str, str]) -> dict[str, str]:
        """The files of a pushed commit that can be a kernel's: UTF-8 texts with plain names."""
        texts, left = dict[str, str](), list[str]()
        for file, blob in entries.items():
            if file in RESERVED_NAMES:
                continue
            try:
                if not FILE_NAME.fullmatch(file):
                    raise ValueError("no kernel's file has such a name")
                texts[file] = self.store.read(blob).decode()
            except ValueError:  # it is no text either
                left.append(file)
        if left:
            _LOG.warning("branch %s%s: left out %s, not a kernel's file", self.prefix, name, ", ".join(map(repr, left)))
        return texts

    def _ancestor(self, commit: str, name: str) -> str | None:
        for before in islice(self.store.line(commit), _DEEPEST):
            trial = self.store.trailer(before, "Trial")
            if trial and trial != name and f"{self.prefix}{trial}" in self.store.containing(before):
                return trial
        return None


def newest_holding(trial: Trial, earlier: Iterable[Trial], key: Key | None) -> Trial:
    """A trial with its newest verdict under the key; where there is none, with its last one, as stale.

    `earlier` is the trial with the verdicts before its last one, the newest first; one on another kernel ends the
    search. Without a key every verdict holds.
    """
    changed = key.describe_changes(trial.evaluation) if key and trial.evaluation else ""
    if not key or not changed:
        return trial
    for before in earlier:
        if not before.evaluation or (before.kernel and trial.kernel and before.kernel.files != trial.kernel.files):
            break
        if not key.describe_changes(before.evaluation):
            return replace(trial, evaluation=before.evaluation)
    return replace(trial, stale=changed)


def step_of(store: Store, commit: str) -> RoundStep | None:
    """The step of a round that a commit stands for; None for any other commit. Raises LineageError."""
    entries = store.entries(commit)
    if "round.json" in entries:
        return schema.load("round", store.read(entries["round.json"]), RoundStep)
    text = store.header(commit).text  # from before there was a `round.json`
    cause, name, base = (trailer(text, key) for key in ("Cause", "Round", "Base"))
    if cause and "trials.json" in entries:
        trials: tuple[Trial, ...] = schema.load("trials", store.read(entries["trials.json"]), tuple)
        return RoundStep(cause, ids=tuple(trial.id for trial in trials), planned="plan.json" in entries)
    if "trial.json" in entries or not (name or base):
        return None
    body = "\n".join(line[4:] for line in text.split("\n") if line.startswith("    ")) if base else ""
    return RoundStep(name, base, trailer(text, "Reference"), body)


def plan_of(store: Store, commit: str, step: RoundStep) -> Plan | None:
    """The plan that a step kept; None where the step is none of a plan. Raises LineageError."""
    return schema.load("plan", store.read(f"{commit}:plan.json"), Plan) if step.planned else None
