"""Where a note says it comes from -> what stands there now: trials in the lineage, quotes in documents, programs.

Nothing is judged again and no model is asked. What cannot be looked at here (a document that is gone or has changed, a
lineage that is elsewhere, a verdict that is stale) is said and is no contradiction.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from ksflow import home
from ksflow.config.warm_start import TRIAL
from ksflow.errors import UNREADABLE, ConfigError, LineageError
from ksflow.lineage import Lineage
from ksflow.notes import documents
from ksflow.notes.knowledge import StoredNote
from ksflow.records import Document, Evaluation, Trial

RECORD = "documents.json"
"""Beside notes: the documents that they were made from, a row each of name, path and sha256."""
_AROUND = 160  # characters shown on either side of a quote


@dataclass(frozen=True)
class SourceCheck:
    """What became of one source."""

    source: str
    holds: bool | None
    """None where it cannot be told here."""
    said: str
    """One line for a person."""
    context: str = ""
    """What stands around it."""


class RecordedDocument(NamedTuple):
    """A document that notes were made from."""

    name: str
    path: Path
    sha256: str
    size: int = 0


class Sources:
    """Looks into sources, and reads a lineage once.

    `opened(problem=, run=)` opens a lineage; bare ids belong to `problem` and `run`.
    """

    def __init__(self, opened: Callable[..., Lineage], problem: str, run: str) -> None:
        self._opened = opened
        self._here = (problem, run)
        self._lineages: dict[tuple[str, str], Lineage | None] = {}
        self._trials: dict[str, dict[str, Trial]] = {}

    def lineage(self, problem: str = "", run: str = "") -> Lineage | None:
        """The lineage of a run, by default of that which bare ids belong to; None where there is none."""
        key = problem or self._here[0], run or self._here[1]
        if key not in self._lineages:
            self._lineages[key] = None
            with suppress(LineageError, ConfigError):
                self._lineages[key] = self._opened(problem=key[0], run=key[1], create=False)
        return self._lineages[key]

    def close(self) -> None:
        """End git's helper processes."""
        for lineage in self._lineages.values():
            if lineage:
                lineage.close()

    def check_note(self, entry: StoredNote) -> tuple[SourceCheck, ...]:
        """One finding for each of a note's sources, in their order."""
        note = entry.note
        quotes = note.quotes or ("",) * len(note.sources)
        return tuple(self._find(entry, source, quote) for source, quote in zip(note.sources, quotes, strict=True))

    def _find(self, entry: StoredNote, source: str, quote: str) -> SourceCheck:
        if match := TRIAL.fullmatch(source):
            return self._trial(source, match)
        if source.startswith("probe "):
            program = entry.note.program
            if program and entry.file and (entry.file.parent / program).is_file():
                return SourceCheck(source, True, f"measured by {program}, which lies beside the note")
            return SourceCheck(
                source, None, "its program is not here" if program else "no program is kept with the note"
            )
        if not quote:
            return SourceCheck(source, None, "no quote: nobody has checked that it says so")
        return _quoted(entry, source, quote)

    def _trial(self, source: str, match: re.Match[str]) -> SourceCheck:
        problem, run = match["problem"] or self._here[0], match["run"] or self._here[1]
        lineage = self.lineage(problem, run)
        if lineage is None:
            return SourceCheck(source, None, f"no lineage of {problem}/{run} here")
        name = f"{problem}/{run}"
        if name not in self._trials:
            self._trials[name] = {trial.id: trial for trial in lineage.all_trials()}
        trial = self._trials[name].get(match["id"])
        if trial is None:
            return SourceCheck(source, False, f"no trial {match['id']} in {name}")
        was = _earlier(lineage, trial, match["commit"])
        if match["commit"] and was is None:
            return SourceCheck(
                source, False, f"commit {match['commit']} is not on branch {lineage.branch_of(trial.id)}"
            )
        holds, verdict = _compared(was or trial, trial, cited=bool(match["commit"]))
        about = f"{trial.idea or trial.origin.value} {trial.evaluation.reason if trial.evaluation else ''}"
        return SourceCheck(source, holds, verdict, " ".join(about.split())[: 2 * _AROUND])


def _earlier(lineage: Lineage, trial: Trial, commit: str | None) -> Trial | None:
    """The trial as the cited commit has it; without one as its first verdict has it. None for a foreign commit."""
    line = lineage.store.line(lineage.commit_of(trial.id))
    history = list(takewhile(lambda name: lineage.store.trailer(name, "Trial") == trial.id, line))
    if commit:
        named = next((name for name in history if name.startswith(commit)), None)
        return lineage.trial_at(trial.id, named) if named else None
    judged = (lineage.trial_at(trial.id, name) for name in reversed(history))
    return next((then for then in judged if then.evaluation), None)


def _compared(was: Trial, trial: Trial, cited: bool) -> tuple[bool | None, str]:
    """Whether what was said of a trial is still said of it."""
    then, now = was.evaluation, trial.evaluation
    if trial.failure:
        return True, f"failed: {' '.join(trial.failure.split())[:120]}"
    if now is None:
        return None, "it has no verdict yet"
    if trial.stale:
        return None, f"{_verdict(now)}, stale now: {trial.stale} changed since"
    if then is None or (then.verdict is now.verdict and not _differs(then, now)):
        return True, f"{_verdict(now)}, as before"
    if then.target != now.target:
        return None, f"{_verdict(then)} on {then.target}, {_verdict(now)} on {now.target}"
    if cited:
        return False, f"{_verdict(then)} when it was cited, {_verdict(now)} now"
    return None, f"{_verdict(then)} at first, {_verdict(now)} now; the note does not say which it means"


def _differs(then: Evaluation, now: Evaluation) -> bool:
    """Whether two judgements of a kernel disagree about its speed beside a kernel that both were timed beside."""
    pairs = [(row, other) for row in then.evidence.against if (other := now.versus(row.id))]
    return any((row.ahead and other.slower) or (row.slower and other.ahead) for row, other in pairs)


def _verdict(evaluation: Evaluation) -> str:
    score = f" {evaluation.score_us:.4g} µs" if evaluation.score_us else ""
    return f"{evaluation.verdict.value}{score}"


def _quoted(entry: StoredNote, source: str, quote: str) -> SourceCheck:
    """By the recorded document that says so, if one of that name does."""
    listed = recorded_documents(entry.file.parent) if entry.file else []
    named = [row for row in listed if source == row.name or source.startswith(f"{row.name}, ")]
    longest = max((len(row.name) for row in named), default=0)
    rows = [row for row in named if len(row.name) == longest]
    if not rows and (file := _of_project(source)):
        return _looked_up(RecordedDocument(source.partition(", ")[0], file, documents.fingerprint(file)[0]), "", quote)
    findings = [_looked_up(row, source, quote) for row in rows]
    nowhere = SourceCheck(source, None, f"its document is not in {RECORD}; `python -m ksflow digest` keeps that")
    # False only where all of them can be read: it may stand in the one that cannot
    return min(findings, key=lambda finding: (True, None, False).index(finding.holds), default=nowhere)


def _looked_up(row: RecordedDocument, source: str, quote: str) -> SourceCheck:
    words = " ".join(quote.split())
    if not row.path.is_file():
        return SourceCheck(source, None, f"{row.path} is missing")
    if documents.fingerprint(row.path)[0] != row.sha256:
        return SourceCheck(source, None, f"{row.path} has changed since it was read")
    document = _document(row.name, row.path, row.sha256)
    passage = documents.locate([document], source or document.source, quote) if document else None
    if passage is None:
        return SourceCheck(source, False, f"{row.name} does not say there: {words[:120]}")
    flat = " ".join(passage.text.split())
    at = max(flat.find(words[:40]), 0)
    return SourceCheck(
        source, True, f"it says so: {words[:120]}", flat[max(at - _AROUND, 0) : at + len(words) + _AROUND]
    )


def _of_project(source: str) -> Path | None:
    """The file of this project that a source names; None for any other. A wheel has problems and seeds alone."""
    name = source.partition(", ")[0]
    top, _, rest = name.partition("/")
    if top in ("problems", "seeds"):
        file = home.shipped_path(top, rest)
    elif top in ("benchmarks", "results"):
        file = home.PACKAGE.parent / name
    else:
        return None
    return file if file.is_file() else None


def recorded_documents(folder: Path) -> list[RecordedDocument]:
    """The documents that a folder's notes are from. ConfigError for a file that does not say it."""
    file = folder / RECORD
    if not file.is_file():
        return []
    try:
        return [
            RecordedDocument(
                str(row["name"]), Path(row["path"]).expanduser(), str(row["sha256"]), int(row.get("size", 0))
            )
            for row in json.loads(file.read_text(encoding="utf-8"))
        ]
    except UNREADABLE as error:
        raise ConfigError(
            f"{file} is no list of name, path and sha256: {error}; mend or remove it, and digest the documents again"
        ) from error


@cache
def _document(name: str, path: Path, digest: str) -> Document | None:
    """Read once, as long as it stays the same."""
    return documents.load(documents.File(name, path, given=False))
