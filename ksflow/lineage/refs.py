"""Moves refs as git does, without a process of git for each time.

A ref is a file. What moves it writes its new end to `NAME.lock`, which locks it for everybody, flushes that to the disk
and gives it the ref's name; `packed-refs` holds what has no file of its own. Whatever is not that plain is left to git.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

ZERO = "0" * 40
Ref = tuple[str, str, str]
"""(name, new, expected old). `ZERO` as new deletes, as old creates; an empty new only verifies."""
Mark = tuple[int, int, int] | None
"""Inode, time of the last change and size; None where these may not tell."""
_NOT_PLAIN = ("reftable", "logs", "hooks/reference-transaction")


class PackedRefs:
    """The refs of `packed-refs` whose names start so."""

    def __init__(self, path: Path, *prefixes: str) -> None:
        self._path, self._prefixes = path / "packed-refs", prefixes
        self._mark: Mark = None
        self._known: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """Ref -> its commit; the same mapping as last time where the file is the same."""
        try:
            with self._path.open(errors="surrogateescape", encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                mark = status.st_ino, status.st_mtime_ns, status.st_size
                if mark != self._mark:
                    rows = (row.rstrip("\n") for row in file)
                    self._known = {row[41:]: row[:40] for row in rows if row[41:].startswith(self._prefixes)}
                    self._mark = mark
        except FileNotFoundError:
            self._known, self._mark = self._known and {}, None
        return self._known


class PlainRefs:
    """The refs of a repository, as far as they are files and rows of `packed-refs`."""

    def __init__(self, path: Path) -> None:
        self._path = os.path.abspath(path)
        self._packed = PackedRefs(path, "refs/")
        self._plain = not any((path / name).exists() for name in _NOT_PLAIN)

    def move(self, changes: Iterable[Ref]) -> bool | None:
        """All changes, or none. False where a ref is not at its expected value; None where git has to do it.

        A process that is killed on the way has made the first: refs that are new, those that move, those that go.
        """
        order = sorted(changes, key=lambda change: (change[1] == ZERO, change[2] != ZERO))
        locks: dict[str, int] = {}
        with suppress(OSError):  # locked, or a ref stands where a folder must be: git says what it is
            try:
                return self._move(order, locks) if self._plain else None
            finally:
                for name, file in locks.items():
                    os.unlink(f"{self._path}/{name}.lock")
                    os.close(file)
        return None

    def _move(self, order: Iterable[Ref], locks: dict[str, int]) -> bool | None:
        for name, new, _ in order:
            if new:
                os.makedirs(os.path.dirname(lock := f"{self._path}/{name}.lock"), exist_ok=True)
                locks[name] = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        packed = self._packed.read()  # by now, as a ref is packed before its file goes
        for name, new, old in order:
            value = self._value(name, packed)
            if value is None or (new == ZERO and name in packed):
                return None
            if value != old:
                return False
            if new and new != ZERO:
                os.write(locks[name], f"{new}\n".encode())
                os.fsync(locks[name])
        for name, new, _ in order:
            if new == ZERO:
                os.unlink(f"{self._path}/{name}")
            elif new:
                os.rename(f"{self._path}/{name}.lock", f"{self._path}/{name}")
                os.close(locks.pop(name))  # from now on the lock may be another one's
        return True

    def _value(self, name: str, packed: Mapping[str, str]) -> str | None:
        """A ref's commit, `ZERO` where there is none; None where only git can tell."""
        try:
            with open(f"{self._path}/{name}", "rb") as file:
                text = file.read(64)
        except FileNotFoundError:
            above = accumulate(name.split("/")[:-1], "{}/{}".format)
            return packed.get(name, ZERO) if packed.keys().isdisjoint(above) else None
        return text[:40].decode() if re.fullmatch(rb"[0-9a-f]{40}\n", text) else None
