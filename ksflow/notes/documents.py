"""Documents on disk: manuals, posts, kernels, whole repositories; and the passages that contain a source's quote.

Not covered: judging relevance, and the network. Nothing that is read is executed.
"""

import hashlib
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from ksflow.errors import ConfigError, reaching
from ksflow.notes.passages import split_passages
from ksflow.records import Document, Note, Passage

_MOST_MB = 4  # of a text or source file in a folder
_MOST_PAGED_MB = 128
_MOST_GIVEN_MB = 512  # of a file that was named: it is held in memory
_PAGED = {".pdf", ".html", ".htm", ".xhtml"}
_DATA = {".csv", ".tsv", ".json", ".jsonl", ".lock", ".svg", ".ipynb", ".log", ".map", ".po", ".xml"}
_BUILT = {"build", "dist", "node_modules", "__pycache__", "venv", "env", "site-packages", "CMakeFiles"}
_LOOKS = {"'": "\u2018\u2019", '"': "\u201c\u201d", "-": "\u2010\u2011\u2012\u2013\u2014\u2212", "": "\u00ad"}
_SAME = str.maketrans({sign: plain for plain, signs in _LOOKS.items() for sign in signs})
_NAMED = 3  # files of a kind that a notice names

Notice = Callable[[str], None]


@dataclass(frozen=True)
class File:
    """A document on disk."""

    name: str  # begins its sources: the file's name, or the given folder's name and the path in it
    path: Path
    given: bool = True  # whether it was named itself, not found in a folder


@dataclass(frozen=True)
class Progress:
    """Progress of a digestion, after each piece that was read or skipped."""

    piece: int  # from 1
    pieces: int
    sources: tuple[str, ...]  # the passages that were shown
    key: str = ""  # digest of the piece and the question; equal ones are not read again
    found: tuple[Note, ...] = ()  # its notes, new or improved
    skipped: bool = False  # it was read before
    failed: str = ""  # why it gave no notes


@dataclass(frozen=True)
class Unread:
    """Sources that a digestion left unread, and why."""

    sources: tuple[str, ...]
    why: str


@runtime_checkable
class DocumentReader(Protocol):
    """A digester that reads documents, a piece at a time."""

    watch: Callable[[Progress | Unread], None]  # called with each piece, and with unread sources
    done: Collection[str]  # keys of pieces that are not read again


def find(paths: Iterable[str | Path], notice: Notice = lambda text: None) -> tuple[File, ...]:
    """Return the files at `paths`, with folders walked in order; `notice` is told what is left out. ConfigError."""
    files: dict[Path, File] = {}
    for word in paths:
        path = Path(word).expanduser()
        if not path.exists():
            raise ConfigError(f"no file or folder {word}; digest takes the paths of documents")
        if not (path.is_dir() or path.is_file()):
            raise ConfigError(f"{word} is a pipe or a device; save what it gives as a file and digest that")
        if path.is_file() and path.stat().st_size > _MOST_GIVEN_MB * 1_000_000:
            raise ConfigError(f"{word} is over {_MOST_GIVEN_MB} MB; cut it into parts and digest those that matter")
        for file in _walk(path.resolve(), notice) if path.is_dir() else (File(path.name, path.resolve()),):
            files.setdefault(file.path, file)
    if not files:
        raise ConfigError("nothing to read there; digest reads PDF, Markdown, HTML, text and source code")
    name, count = Counter(file.name for file in files.values()).most_common(1)[0]
    if count > 1:
        raise ConfigError(f"two documents are named {name}, so sources could mean either; rename one")
    return tuple(files.values())


def load(file: File, notice: Notice = lambda text: None) -> Document | None:
    """Return a file's passages; None, with a notice, for an unreadable one of a folder. Raises ConfigError."""
    try:
        with reaching(f"cannot read {file.path}", "check its rights"):
            return Document(file.name, split_passages(file.name, file.path.read_bytes()))
    except ConfigError as error:
        if file.given:
            raise
        notice(f"left out: {error}")
        return None


def fingerprint(path: Path) -> tuple[str, int]:
    """Return (SHA-256, size in bytes) of a file."""
    data = path.read_bytes()
    return hashlib.sha256(data).hexdigest(), len(data)


def locate(documents: Iterable[Document], source: str, quote: str) -> Passage | None:
    """Return the passage that `source` (`NAME, PLACE`; without a place any) names and that contains `quote`, or None.
    White space, hyphens at line ends and the form of quotation marks and dashes are ignored; case is not.
    """
    passages = (passage for _, passage in named_passages(documents, source))
    return next((passage for passage in passages if contains(passage.text, quote)), None)


def named_passages(documents: Iterable[Document], source: str) -> Iterator[tuple[Document, Passage]]:
    """Yield the passages that a source can mean, the exact one first."""
    wanted = _plain(source)
    rough = []
    for document in documents:
        name = _plain(document.source)
        if wanted != name and not wanted.startswith(f"{name}, "):
            continue
        place = wanted[len(name) + 2 :]
        for passage in document.passages:
            known = _plain(passage.place)
            if known == place:
                yield document, passage
            elif known.startswith((f"{place},", f"{place} (")) or not place:
                rough.append((document, passage))
    yield from rough


def contains(text: str, quote: str) -> bool:
    """Return whether `text` contains the words of `quote`."""
    wanted = _plain(quote)
    return any(wanted in form for form in _forms(text))


@lru_cache(maxsize=4096)
def _forms(text: str) -> tuple[str, str]:
    hyphenated = re.sub(r"(?<=\w)([-\u2010\u00ad])[ \t]*\n\s*(?=\w)", r"\1", text)
    joined = re.sub(r"(?<=\w)[-\u2010\u00ad][ \t]*\n\s*(?=\w)", "", text)
    return _plain(hyphenated), _plain(joined)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text.translate(_SAME)).split())


def _walk(folder: Path, notice: Notice) -> Iterator[File]:
    left_out: dict[str, list[str]] = defaultdict(list)
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _BUILT)
        for name in sorted(files):
            path = Path(where, name)
            shown = f"{folder.name}/{path.relative_to(folder).as_posix()}"
            if name.startswith(".") or path.is_symlink() or not path.is_file():  # opening a pipe would wait
                continue
            if why := _unfit(path):
                left_out[why].append(shown)
            else:
                yield File(shown, path, given=False)
    for why, names in left_out.items():
        rest = ", ..." if len(names) > _NAMED else ""
        notice(f"left out of {folder.name}: {len(names)} {why} ({', '.join(names[:_NAMED])}{rest})")


def _unfit(path: Path) -> str:
    ending = path.suffix.lower()
    most = _MOST_PAGED_MB if ending in _PAGED else _MOST_MB
    try:
        size = path.stat().st_size
        with path.open("rb") as opened:
            head = opened.read(8192)
    except OSError:
        return "that cannot be opened"
    if not head.strip():
        return "empty"
    if ending in _DATA:
        return "data files"
    if ending != ".pdf" and b"\0" in head:
        return "binary"
    return f"over {most} MB" if size > most * 1_000_000 else ""
