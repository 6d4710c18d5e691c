"""Which refs have changed since they were last looked at: what costs as much as has changed, not as much as there is.

Git keeps a ref in a file of its own until `pack-refs` moves many into one, `packed-refs`. Files that have not changed
are not read again. Where git keeps refs otherwise (reftable) it is asked for all of them each time.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_RACY_NS = 50_000_000
"""A file that is younger may change once more without its time telling."""

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
        self._reftable = (path / "reftable").exists()
        self.forget()

    def forget(self) -> None:
        """All of them are new to whoever asks next."""
        self._loose: dict[str, tuple[Mark, str]] = {}
        self._packed: dict[str, str] = {}
        self._mark: Mark = None

    def changes(self) -> dict[str, str]:
        """Ref -> its commit, where that is another one than last time; an empty text where it is gone."""
        if self._reftable:
            loose, packed = {}, self._ask(*self._prefixes)
        else:
            loose = dict(self._read_loose())  # before the packed ones: a ref is packed first, then its file is removed
            packed = self._read_packed()
        before, self._loose = self._loose, loose
        names = {name for name, (_, commit) in loose.items() if before.get(name, (None, ""))[1] != commit}
        names |= before.keys() - loose.keys()
        if packed is not self._packed:
            names |= {name for name, commit in packed.items() if self._packed.get(name) != commit}
            names |= self._packed.keys() - packed.keys()
        old, self._packed = self._packed, packed
        found = {}
        for name in names:
            commit = loose[name][1] if name in loose else packed.get(name, "")
            if commit != (before[name][1] if name in before else old.get(name, "")):
                found[name] = commit
        return dict(sorted(found.items()))

    def _read_loose(self) -> Iterator[tuple[str, tuple[Mark, str]]]:
        for prefix in self._prefixes:
            for name, mark in self._files(prefix.rstrip("/")):
                known = self._loose.get(name)
                if mark and known and known[0] == mark:
                    yield name, known
                elif (commit := self._commit(name)) is not None:
                    yield name, (mark, commit)

    def _files(self, folder: str) -> Iterator[tuple[str, Mark]]:
        try:
            with os.scandir(self._path / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if entry.is_dir():
                        yield from self._files(name)
                    elif not name.endswith(".lock"):
                        yield name, _mark(entry.stat())
        except (FileNotFoundError, NotADirectoryError):  # just packed
            return

    def _commit(self, name: str) -> str | None:
        """What a ref's own file says; None where there is none any more, or nothing that leads to a commit."""
        try:
            text = (self._path / name).read_text(errors="replace").rstrip("\n")
        except (FileNotFoundError, IsADirectoryError):
            return None
        return text if re.fullmatch("[0-9a-f]{40}", text) else self._odd(name)

    def _read_packed(self) -> dict[str, str]:
        """Those of `packed-refs`: the same object as before where that file is the same."""
        try:
            with (self._path / "packed-refs").open("rb") as file:
                mark = _mark(os.fstat(file.fileno()))
                if mark and mark == self._mark:
                    return self._packed
                data = file.read()
        except FileNotFoundError:
            mark, data = None, b""
            if not self._packed:
                return self._packed
        self._mark = mark
        found: dict[str, str] = {}
        for prefix in self._prefixes:
            line = rb"^([0-9a-f]{40}) (%b.+)$" % re.escape(prefix.encode())
            rows = re.findall(line, data, re.MULTILINE)
            found.update((name.decode(errors="replace"), commit.decode()) for commit, name in rows)
        return found


def _mark(stat: os.stat_result) -> Mark:
    age = time.time_ns() - stat.st_mtime_ns
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size) if age > _RACY_NS else None
