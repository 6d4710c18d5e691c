"""The verb `digest`: documents become notes on disk, each claim with its source.

After each piece what it gave is on disk, so a kill loses nothing: the same command skips what was read, and answers
that were paid for come from the model's cache. What this does not do: read outcomes of a run (its own digester does).
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from ksflow import home, report
from ksflow.cli.sources import RECORD, RecordedDocument, recorded_documents
from ksflow.cli.task import recorded_task
from ksflow.config import compose
from ksflow.errors import UNREADABLE, BudgetError, ConfigError, StageError, pluralize, reaching, stage_boundary
from ksflow.kernels.hardware.target import label
from ksflow.lineage.transcript import Transcript
from ksflow.notes import documents, knowledge
from ksflow.notes.documents import DocumentReader, File, Progress, Unread
from ksflow.protocols import Digester
from ksflow.records import Document, Material, Note, Problem, Target
from ksflow.report.words import grid

_DONE = ".digested.json"
_SHOWN = 3  # unread places that are named


def digest(words: list[str], overrides: list[str]) -> int:
    """`digest PATH...`: 0 when all was read that was to be, 1 when a limit or a failure left pieces out."""
    if not words:
        raise ConfigError("the command is: digest PATH... [problem=NAME] [target=NAME] llm=NAME (files or folders)")
    cfg = compose.compose(overrides)
    reader: Digester = compose.build(cfg.digester)
    if not isinstance(reader, DocumentReader):
        raise ConfigError("digest needs a model that reads; choose one with llm=... (llm=dummy for a dry run)")
    console = report.console()
    problem: Problem = compose.build(cfg.problem)
    target: Target = compose.build(cfg.target)
    folder = knowledge.user_folder(cfg.lineage.path) / label(target)
    read = _read(words, console)
    known: tuple[Note, ...] = compose.build(cfg.knowledge)(target=target, problem=problem.name)
    notes = tuple({note.title: note for note in (*known, *knowledge.in_folder(folder))}.values())
    store = NoteStore(folder, [file for file, _ in read])
    with recorded_task(cfg, problem, "digest") as transcript:
        display = _Display(console, store, transcript)
        reader.watch, reader.done = display, store.done
        try:
            with stage_boundary("digester"):
                reader(problem, Material(tuple(document for _, document in read), notes=notes))
        except BudgetError as error:
            display(Unread((), f"{error}; raise it and give the same command again"))
        except StageError as error:
            display(Unread((), str(error)))
        display.end()
    return 1 if display.missing else 0


def _read(words: Sequence[str], console: Console) -> list[tuple[File, Document]]:
    """The documents, with a line for each."""
    notice = partial(report.say, console, style="yellow")
    pairs = []
    for file in documents.find(words, notice):
        document = documents.load(file, notice)
        if document and document.passages:
            pairs.append((file, document))
            size = sum(len(passage.text) for passage in document.passages) / 1000
            console.print(f"{file.name}: {pluralize(len(document.passages), 'passage')}, {size:.0f} kB", markup=False)
    if not pairs:
        raise ConfigError("none of the documents has any text; digest reads PDF, Markdown, HTML, text and source code")
    return pairs


class NoteStore:
    """A folder of notes, the record of the documents they are from, and what has been read of them."""

    def __init__(self, folder: Path, files: Sequence[File]) -> None:
        self.folder = folder
        with reaching(f"{folder} cannot be used", "mend or remove what is named"):
            folder.mkdir(parents=True, exist_ok=True)
            # of one file the newest reading counts, files of one name are kept apart
            rows = {(row.name, row.path): row for row in recorded_documents(folder)}
            for file in files:
                rows[file.name, file.path] = RecordedDocument(file.name, file.path, *documents.fingerprint(file.path))
            listed = [row._asdict() | {"path": str(row.path)} for _, row in sorted(rows.items())]
            _write(folder / RECORD, listed)
        self.done = self._read_done()

    def keep(self, key: str, notes: tuple[Note, ...]) -> None:
        """Write what a piece gave, then that it is done; what another digestion of this folder has done stays done."""
        for note in notes:
            knowledge.write(note, self.folder, origin="digest")
        self.done |= {key, *self._read_done()}
        _write(self.folder / _DONE, {"done": sorted(self.done)})

    def _read_done(self) -> set[str]:
        path = self.folder / _DONE
        try:
            state = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"done": []}
            return {str(key) for key in state["done"]}
        except UNREADABLE as error:
            raise ConfigError(
                f"{path} does not say what was read ({error}); remove it, and all is read again"
            ) from error


def _write(path: Path, value: Any) -> None:
    home.write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


class _Display:
    """Told of each piece: keeps what it gave, and says so in a line."""

    def __init__(self, console: Console, store: NoteStore, transcript: Transcript) -> None:
        self._console, self._store, self._transcript = console, store, transcript
        self.notes: dict[str, Note] = {}
        self.missing = False
        """Whether a limit or a failure left something out."""

    def __call__(self, what: Progress | Unread) -> None:
        if isinstance(what, Unread):
            self.missing = self.missing or not what.sources
            named = ", ".join(what.sources[:_SHOWN]) + (", ..." if len(what.sources) > _SHOWN else "")
            left = f"left unread, {pluralize(len(what.sources), 'passage')} ({named}): " if what.sources else ""
            self._say(f"{left}{what.why}", doubtful=True)
            return
        if what.failed:
            self.missing = True
        elif not what.skipped:
            self._store.keep(what.key, what.found)
            self.notes |= {note.title: note for note in what.found}
        done = what.failed or ("read before" if what.skipped else pluralize(len(what.found), "note"))
        passages = f"{what.sources[0]} to {what.sources[-1]}" if len(what.sources) > 1 else "".join(what.sources)
        self._say(f"piece {what.piece} of {what.pieces}, {passages}: {done}; {self._cost()}", bool(what.failed))

    def end(self) -> None:
        """List the notes of this call."""
        rows = []
        for note in self.notes.values():
            more = f" and {len(note.sources) - 1} more" if note.sources[1:] else ""
            rows.append({"note": note.title, "status": note.status.value, "sources": note.sources[0] + more})
        if rows:
            self._console.print(grid(self._console, rows, rows[0], rows[0]))
        self._say(f"{pluralize(len(self.notes), 'note')} new or improved in {self._store.folder}; {self._cost()}")

    def _cost(self) -> str:
        total = self._transcript.total
        return ", ".join(filter(None, (f"{total.tokens} tokens", total.dollars())))

    def _say(self, text: str, doubtful: bool = False) -> None:
        report.say(self._console, text, style="yellow" if doubtful else None)
