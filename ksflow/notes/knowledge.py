"""Notes on disk: Markdown files with front matter, in a folder per target; shipped ones, and the user's own.

    ---
    title: Outer products need no transposition
    origin: who made it, free text
    sources: [Intel Optimization Reference Manual, section 20.5]
    quotes: [what it says there]      one for each source (empty if unchecked), or none at all
    targets: [cpu]                    names of targets, `cpu` or `gpu`, architectures (gfx942), a CPU's features
                                      (amx_tile), fingerprints
    problems: [fp8_gemm]
    status: documented
    closes: [00012]                   trials that it replaces
    program: probe.cu                 the program that measured it, beside the note
    challenge: why a person doubts it
    ---
    Text.

Only title and sources are required. A note is `documented` if each document among its sources is quoted, so that
`knowledge check` can look it up; otherwise it is `cited`, whatever its status says. The user's folder is `knowledge`
beside the lineage; a note there replaces the shipped one of the same title and folder. Not covered: making notes
(digesters and probes do), ranking them (prompts do), checking their sources (`sources`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ksflow import home
from ksflow.errors import ConfigError, explain_write_errors
from ksflow.kernels.hardware.target import means
from ksflow.records import Note, Status, Target, digest

LINEAGE = "runs/lineage.git"
INDEX = "index.md"  # a person's text about a folder, not a note
_LISTS = ("sources", "quotes", "targets", "problems", "closes")
_KEYS = ("title", "origin", "status", *_LISTS, "program", "challenge")
_PARTS = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$\n?(.*)\Z", re.MULTILINE | re.DOTALL)
_NO_DOCUMENT = re.compile(r"probe |(?:[^/\s]+/[^/\s]+/)?\d{5,}(?:@[0-9a-f]+)?$")
"""Matches sources that are probes or trials, which need no quotes."""
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Loads every value as text: a trial's id is not an octal number."""


@dataclass(frozen=True)
class StoredNote:
    """A note, and its place."""

    note: Note
    where: str  # `shipped cpu`, the user's folder, or `run softmax/main`
    file: Path | None = None  # None for a note of a run
    shipped: bool = False


def user_folder(lineage: str | Path) -> Path:
    """Return the user's folder of notes, beside the lineage."""
    return Path(lineage).expanduser().parent / "knowledge"


def initial_notes(
    target: Target, problem: str = "", folder: str | None = None, lineage: str = LINEAGE
) -> tuple[Note, ...]:
    """Return the notes that fit a target and a problem. Raises ConfigError for an invalid file. problem: its name,
    or "" for any. folder: replaces the shipped notes. lineage: the user's own notes are beside it.
    """
    entries, broken = stored_notes(folder, lineage)
    if broken:
        raise ConfigError(broken[0])
    notes = (entry.note for entry in entries if is_relevant(entry.note, target, problem))
    return tuple({note.title: note for note in notes}.values())


def stored_notes(folder: str | None = None, lineage: str = LINEAGE) -> tuple[tuple[StoredNote, ...], tuple[str, ...]]:
    """Return every note on disk (`folder` replaces the shipped ones), those beside the lineage in place of the shipped
    ones that they replace, and an error for each invalid file. Raises ConfigError without the folder.
    """
    root = Path(folder).expanduser() if folder else home.shipped_path("knowledge")
    if not root.is_dir():
        raise ConfigError(f"no knowledge folder {root}; name one with knowledge.folder=FOLDER")
    broken: list[str] = []
    notes: dict[tuple[str, str], StoredNote] = {}
    for entry in (*_entries(root, broken, ships=True), *_entries(user_folder(lineage), broken)):
        assert entry.file is not None
        notes[entry.file.parent.name, entry.note.title] = entry
    return tuple(notes.values()), tuple(broken)


def is_relevant(note: Note, target: Target | None, problem: str = "") -> bool:
    """Return whether a note applies to a target and a problem. Chips of one architecture share their notes."""
    if problem and note.problems and problem not in note.problems:
        return False
    return not note.targets or target is None or any(means(word, target) for word in note.targets)


def read_note(file: Path) -> Note:
    """Return one note. Raises ConfigError, which names the file."""
    try:
        return _read(file)[0]
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{file} is not a note (front matter with title and sources, then text): {reason}; mend or remove it"
        ) from error


def in_folder(folder: Path) -> list[Note]:
    """Return the notes of one folder, in the order of their files. Raises ConfigError for an invalid file."""
    return [read_note(file) for file in sorted(folder.glob("*.md")) if file.name != INDEX]


def write(note: Note, folder: Path, origin: str = "") -> Path:
    """Write a note in place of the one with its title; return the file. origin: by default as before. ConfigError."""
    with explain_write_errors(folder, "name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        file = _file(note.title, folder)
        origin = origin or (_read(file)[1] if file.exists() else "")
        values = {key: origin if key == "origin" else getattr(note, key) for key in _KEYS}
        values["status"] = note.status.value
        shown = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value}
        head = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110)
        home.write(file, f"---\n{head}---\n{note.text.strip()}\n")
    return file


def find_note(entries: Iterable[StoredNote], word: str) -> StoredNote:
    """Return the note of this title, file name, or unique beginning of a title. Raises ConfigError."""
    exact, alike = [], []
    for entry in entries:
        title = entry.note.title
        names = {title, title.lower(), _slug(title), entry.file.stem if entry.file else title}
        exact += [entry] if {word, word.lower()} & names else []
        alike += [entry] if _slug(title).startswith(_slug(word)) else []
    matches = exact or alike
    if len(matches) == 1 or (exact and len({entry.note.title for entry in exact}) == 1):
        return matches[-1]
    if matches:
        titles = ", ".join(repr(entry.note.title) for entry in matches[:4])
        raise ConfigError(f"{word!r} may be {titles}; give more of the title")
    raise ConfigError(f"no note {word!r}; `python -m ksflow knowledge` lists them")


def keep_challenges(notes: Iterable[Note], before: Iterable[Note]) -> tuple[Note, ...]:
    """Return rewritten notes with the challenges of the previous ones: only a person or a probe removes a challenge."""
    doubts = {note.title: note.challenge for note in before if note.challenge}
    return tuple(replace(n, challenge=n.challenge or doubts.get(n.title, "")) for n in notes)


def _entries(root: Path, broken: list[str], ships: bool = False, deep: bool = True) -> list[StoredNote]:
    patterns = ("*.md", "*/*.md") if deep else ("*.md",)
    entries = []
    for file in sorted(file for pattern in patterns for file in root.glob(pattern)):
        if file.name == INDEX or file.parent.name in ("inbox", "probes"):
            continue
        try:
            note = read_note(file)
        except ConfigError as error:
            broken.append(str(error))
            continue
        entries.append(StoredNote(note, f"shipped {file.parent.name}" if ships else str(file.parent), file, ships))
    return entries


def _read(file: Path) -> tuple[Note, str]:
    about = file.stat()
    return _parsed(file, about.st_mtime_ns, about.st_size)


@lru_cache(4096)
def _parsed(file: Path, changed: int, size: int) -> tuple[Note, str]:
    parts = _PARTS.fullmatch(file.read_text(encoding="utf-8"))
    front = yaml.load(parts[1], _LOADER) if parts else None
    if not parts or not isinstance(front, dict):
        raise ValueError("it does not begin with `---`, front matter and `---`")
    if unknown := front.keys() - set(_KEYS):
        raise ValueError(f"unknown key {min(map(str, unknown))!r}; valid: {', '.join(_KEYS)}")
    values = {key: _checked(key, front.get(key) or None) for key in _KEYS}
    if not values["title"].strip() or not values["sources"]:
        raise ValueError("title or sources are missing")
    status, origin = values.pop("status") or Status.DOCUMENTED, str(values.pop("origin"))
    if status not in set(Status):
        raise ValueError(f"status {status!r}; valid: {', '.join(Status)}")
    note = Note(text=parts[2].strip(), status=Status(status), **values)
    quotes = note.quotes or ("",) * len(note.sources)
    quoted = all(quote or _NO_DOCUMENT.match(source) for source, quote in zip(note.sources, quotes, strict=True))
    return note if quoted or note.status is not Status.DOCUMENTED else replace(note, status=Status.CITED), origin


def _checked(key: str, value: object) -> Any:
    """Return a value of the front matter, lists as tuples. Raises ValueError for another type."""
    if key not in _LISTS:
        if not isinstance(value, str | None):
            raise ValueError(f"{key} is not one text")
        return value or ""
    if not isinstance(value, list | None) or not all(isinstance(word, str) for word in value or ()):
        raise ValueError(f"{key} is not a list of texts")
    return tuple(value or ())


def _file(title: str, folder: Path) -> Path:
    """Return the file of this title, else an unused one."""
    for entry in _entries(folder, [], deep=False):
        if entry.note.title == title and entry.file:
            return entry.file
    file = folder / f"{_slug(title)}.md"
    return folder / f"{_slug(title)}-{digest(title, digits=8)}.md" if file.exists() else file


def _slug(title: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-")
    return plain if plain and plain != "index" else f"note-{digest(title, digits=8)}"
