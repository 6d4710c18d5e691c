"""Objects written by this process: a blob, a tree or a commit costs one file, and no other process's help.

An object is there whole and durable, or not at all: it is written under another name, flushed to the disk, renamed.
All are made in one folder and renamed into theirs: ext4 takes twice as long to make them in 256.
Packing is git's (`Store.maintain`). What it does not do: read, or know what is in an object.
"""

import errno
import hashlib
import os
import secrets
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ksflow.errors import LineageError

_TRIES = 10
"""How often git may take the empty folder of an object away, each time that it has packed."""


class Objects:
    """Those of one repository. `written`: how many since they were packed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = f"{path}/objects"
        self.written = 0
        self.closed = False

    def tree(self, entries: Mapping[str, str]) -> str:
        """Write a tree of blobs (name -> blob id); its id."""
        rows = sorted((name.encode(), bytes.fromhex(blob)) for name, blob in entries.items())
        return self.write("tree", b"".join(b"100644 %b\0%b" % row for row in rows))

    def write(self, kind: str, data: bytes) -> str:
        """Write an object (`blob`, `tree`, `commit`); its id. LineageError where the disk does not take it."""
        if self.closed:
            raise LineageError(f"{self._path} was closed before this was written")
        whole = b"%b %d\0%b" % (kind.encode(), len(data), data)
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        folder = f"{self._folder}/{name[:2]}"
        place = f"{folder}/{name[2:]}"
        if os.path.exists(place):
            return name
        self.written += 1
        packed = zlib.compress(whole, 1)
        try:
            for _ in range(_TRIES):
                with suppress(FileNotFoundError):
                    _write_durably(packed, f"{self._folder}/tmp_obj_{secrets.token_hex(8)}", place)
                    return name
                self._fan_out()
            raise FileNotFoundError(errno.ENOENT, f"{folder} is taken away again and again")
        except OSError as error:
            raise LineageError(f"{self._path}: an object could not be written: {error.strerror}") from error

    def _fan_out(self) -> None:
        """Make the folders of loose objects ahead: made one by one as needed, they get ever dearer on ext4."""
        for number in range(256):
            with suppress(FileExistsError):
                os.mkdir(f"{self._folder}/{number:02x}")


def _write_durably(data: bytes, draft: str, place: str) -> None:
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        with open(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(file)
        os.rename(draft, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
