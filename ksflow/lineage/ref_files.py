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
_MANY, _LOOK_S = 256, 1.0

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
        self._packed: dict[str, dict[str, str]] = {}
        """Prefix -> its refs in `packed-refs`."""
        self._hashes: dict[str, int] = {}
        """Prefix -> a hash of its lines there."""
        self._mark: Mark = None
        self._looked = 0.0

    def changes(self, closely: bool = True) -> dict[str, str]:
        """Ref -> its commit, where that is another one than last time; an empty text where it is gone.

        Not `closely`: where there are many files, those that were there before are looked at once a second.
        """
        closely = closely or len(self._loose) < _MANY or time.monotonic() - self._looked > _LOOK_S
        if closely:
            self._looked = time.monotonic()
        if self._reftable:
            loose, packed = {}, {prefix: self._ask(prefix) for prefix in self._prefixes}
        else:
            loose = dict(self._read_loose(closely))  # first: a ref is packed before its own file is removed
            packed = self._read_packed()
        before, self._loose = self._loose, loose
        names = {name for name, (_, commit) in loose.items() if before.get(name, (None, ""))[1] != commit}
        names |= before.keys() - loose.keys()
        old, self._packed = self._packed, packed
        for prefix, refs in packed.items():
            was = old.get(prefix, {})
            if refs is not was:
                names |= {name for name, commit in refs.items() if was.get(name) != commit} | (was.keys() - refs.keys())
        found = {}
        for name in names:
            commit = loose[name][1] if name in loose else _of(packed, name)
            if commit != (before[name][1] if name in before else _of(old, name)):
                found[name] = commit
        return dict(sorted(found.items()))

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
            text = (self._path / name).read_text(errors="replace").rstrip("\n")
        except (FileNotFoundError, IsADirectoryError):
            return None
        return text if re.fullmatch("[0-9a-f]{40}", text) else self._odd(name)

    def _read_packed(self) -> dict[str, dict[str, str]]:
        """Those of `packed-refs` by prefix: the same objects as before where that file has the same lines."""
        try:
            with (self._path / "packed-refs").open("rb") as file:
                mark = _mark(os.fstat(file.fileno()))
                if mark and mark == self._mark:
                    return self._packed
                data = file.read()
        except FileNotFoundError:
            mark, data = None, b""
        self._mark = mark
        return {prefix: self._part(data, prefix) for prefix in self._prefixes}

    def _part(self, data: bytes, prefix: str) -> dict[str, str]:
        name = b" " + prefix.encode()
        part = data[max(data.find(name) - 40, 0) : data.find(b"\n", data.rfind(name)) + 1] if name in data else b""
        if self._hashes.get(prefix) == hash(part):
            return self._packed[prefix]
        self._hashes[prefix] = hash(part)
        rows = re.findall(rb"^([0-9a-f]{40}) (%b.+)$" % re.escape(prefix.encode()), part, re.MULTILINE)
        return {name.decode(errors="replace"): commit.decode() for commit, name in rows}


def _of(packed: dict[str, dict[str, str]], name: str) -> str:
    return next((refs[name] for refs in packed.values() if name in refs), "")


def _mark(stat: os.stat_result) -> Mark:
    age = time.time_ns() - stat.st_mtime_ns
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size) if age > _RACY_NS else None
