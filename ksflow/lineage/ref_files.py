"""Which refs have changed since they were last looked at: what costs as much as has changed, not as much as there is.

Git keeps a ref in a file of its own until `pack-refs` moves many into one, `packed-refs`. Files that have not changed
are not read again, and of `packed-refs` no line is looked at before the first one that differs. Where git keeps refs
otherwise (reftable) it is asked for all of them each time.
"""

import bisect
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_RACY_NS = 50_000_000
"""A file that is younger may change once more without its time telling."""
_MANY, _LOOK_S = 256, 1.0
_BLOCK = 1 << 16

Mark = tuple[int, int, int] | None
"""Inode, time of the last change and size; None where these may not tell."""


class RefFiles:
    """The refs below some prefixes (which end in a slash). `ask` has git list them; `odd` reads one of another kind."""

    def __init__(
        self,
        path: Path,
        prefixes: tuple[str, ...],
        ask: Callable[..., dict[str, str]],
        odd: Callable[[str], str | None],
    ) -> None:
        self._path, self._prefixes, self._ask, self._odd = path, prefixes, ask, odd
        self._packed_refs = f"{path}/packed-refs"
        self._reftable = (path / "reftable").exists()
        self.forget()

    def forget(self) -> None:
        """All of them are new to whoever asks next."""
        self._loose: dict[str, tuple[Mark, str]] = {}
        self._packed: dict[str, bytes] = {}
        """Prefix -> the lines of its refs in `packed-refs`, sorted by name."""
        self._mark: Mark = None
        self._settled = False
        """Whether `packed-refs` was old enough when it was read last. Git puts another file in its place each time: a
        young one is read again once it is old, not all the while.
        """
        self._looked = 0.0

    def changes(self, closely: bool = True) -> dict[str, str]:
        """Ref -> its commit, where that may be another one than last time; an empty text where it is gone.

        Not `closely`: where there are many files, those that were there before are looked at once a second.
        """
        closely = closely or len(self._loose) < _MANY or time.monotonic() - self._looked > _LOOK_S
        if closely:
            self._looked = time.monotonic()
        loose = {} if self._reftable else dict(self._read_loose(closely))  # first: a ref is packed, then its file goes
        packed = self._read_packed()
        before, self._loose = self._loose, loose
        old, self._packed = self._packed, packed
        told: dict[str, str] = {}
        for prefix, lines in packed.items():
            told |= _differences(old.get(prefix, b""), lines)
        names = {name for name, (_, commit) in loose.items() if before.get(name, (None, ""))[1] != commit}
        names |= (before.keys() - loose.keys()) | told.keys()
        found = {}
        for name in sorted(names):
            commit = loose[name][1] if name in loose else told[name] if name in told else _packed_commit(packed, name)
            if name not in before or before[name][1] != commit:
                found[name] = commit
        return found

    def _read_loose(self, closely: bool) -> Iterator[tuple[str, tuple[Mark, str]]]:
        for prefix in self._prefixes:
            for name, entry in self._files(prefix.rstrip("/")):
                known = self._loose.get(name)
                if known and not closely:
                    yield name, known
                    continue
                try:
                    mark = _mark(entry.stat())
                except FileNotFoundError:  # just packed
                    continue
                if mark and known and known[0] == mark:
                    yield name, known
                elif (commit := self._commit(name)) is not None:
                    yield name, (mark, commit)

    def _files(self, folder: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        try:
            with os.scandir(self._path / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if entry.is_dir():
                        yield from self._files(name)
                    elif not name.endswith(".lock"):
                        yield name, entry
        except (FileNotFoundError, NotADirectoryError):  # just packed
            return

    def _commit(self, name: str) -> str | None:
        """What a ref's own file says; None where there is none any more, or nothing that leads to a commit."""
        try:
            text = (self._path / name).read_text(errors="replace", encoding="utf-8").rstrip("\n")
        except (FileNotFoundError, IsADirectoryError):
            return None
        return text if re.fullmatch("[0-9a-f]{40}", text) else self._odd(name)

    def _read_packed(self) -> dict[str, bytes]:
        """The lines of packed refs by prefix."""
        if self._reftable:
            asked = {prefix: self._ask(prefix).items() for prefix in self._prefixes}
            return {prefix: _lines(f"{commit} {name}".encode() for name, commit in asked[prefix]) for prefix in asked}
        try:
            found = os.stat(self._packed_refs)
            if _file(found) == self._mark and (self._settled or not _mark(found)):
                return self._packed
            with open(self._packed_refs, "rb") as file:
                found, data = os.fstat(file.fileno()), file.read()
            self._mark, self._settled = _file(found), _mark(found) is not None
        except FileNotFoundError:
            self._mark, data = None, b""
        return {prefix: _part(data, b" " + prefix.encode()) for prefix in self._prefixes}


def _part(data: bytes, name: bytes) -> bytes:
    """The lines of `packed-refs` whose names begin so (there is a space before it)."""
    if name not in data:
        return b""
    part = data[data.find(name) - 40 : data.find(b"\n", data.rfind(name)) + 1]
    if b" sorted" in data[: data.find(b"\n")] and b"\n^" not in part:
        return part
    return _lines(row for row in part.split(b"\n") if row[40:].startswith(name))  # of an old git, or with tags


def _lines(rows: Iterable[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in sorted(rows, key=lambda row: row[41:]))


def _differences(old: bytes, new: bytes) -> dict[str, str]:
    """Ref -> its commit, where some lines have another one than others; an empty text where they have none."""
    if old == new:
        return {}
    least = min(len(old), len(new))
    blocks = (at for at in range(0, least, _BLOCK) if old[at : at + _BLOCK] != new[at : at + _BLOCK])
    same = new.rfind(b"\n", 0, next(blocks, least)) + 1
    before, after = set(old[same:].split(b"\n")), set(new[same:].split(b"\n"))
    gone = {os.fsdecode(row[41:]): "" for row in before - after if row}
    return gone | {os.fsdecode(row[41:]): row[:40].decode() for row in after - before if row}


def _packed_commit(packed: dict[str, bytes], name: str) -> str:
    """The commit of one ref, looked for by halves; an empty text where it is not there."""
    wanted = os.fsencode(name)
    lines = next(lines for prefix, lines in packed.items() if name.startswith(prefix))
    at = bisect.bisect_left(range(len(lines)), wanted, key=lambda at: _row(lines, at)[41:])
    row = _row(lines, at)
    return row[:40].decode() if row[41:] == wanted else ""


def _row(lines: bytes, at: int) -> bytes:
    """The line that holds a place."""
    return lines[lines.rfind(b"\n", 0, at) + 1 : lines.find(b"\n", at)]


def _mark(stat: os.stat_result) -> Mark:
    age = time.time_ns() - stat.st_mtime_ns
    return _file(stat) if age > _RACY_NS else None


def _file(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
