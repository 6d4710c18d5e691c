"""Packing: refs and loose objects as git does it, and then small packs into one, without a look at the history.

Every so many objects make a small pack, so many small packs make a full one, and a full one stays as it is: each object
is packed twice, however many there are. `git repack` would walk through all commits to merge two packs. Unreachable
objects stay: another process may be about to use them. A pack is taken away once another one with all that is in it has
been flushed to the disk.
"""

import os
import tempfile
from pathlib import Path

import git

EVERY = 4_000
"""Loose objects written before they are packed."""
_FULL = 20_000
"""Objects from which on a pack is not merged with others any more."""
_SMALL = 8
"""Packs with fewer, from which on they are merged."""
_KEPT = (".keep", ".promisor", ".mtimes")
"""What stands beside a pack that git has a reason to keep as it is."""


def pack(repo: git.Repo, path: Path) -> None:
    """Pack what is loose, and merge small packs. Raises GitError or OSError; nothing is lost then."""
    repo.git.pack_refs("--all")
    repo.git.repack("--geometric=1", "-d", "-l", "-n", "-q", "--threads=1")
    folder = path.absolute() / "objects" / "pack"
    packs = (pack for pack in folder.glob("pack-*.pack") if not any(pack.with_suffix(kind).exists() for kind in _KEPT))
    small = [pack for pack in sorted(packs) if _count(pack) < _FULL]
    if len(small) >= _SMALL:
        _merge(repo, folder, small)


def _count(pack: Path) -> int:
    """How many objects a pack has, by its head."""
    with pack.open("rb") as file:
        return int.from_bytes(file.read(12)[8:], "big")


def _merge(repo: git.Repo, folder: Path, packs: list[Path]) -> None:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as names:
        for pack in packs:
            with pack.with_suffix(".idx").open("rb") as index:
                rows = str(repo.git.show_index(istream=index)).splitlines()
            names.writelines(f"{row.split()[1]}\n" for row in rows)
        names.seek(0)
        made = repo.git.pack_objects("-q", "--threads=1", f"{folder}/pack", istream=names)
    _flush(folder)
    for pack in packs:
        if pack.stem != f"pack-{made}":
            for kind in (".idx", ".pack", ".rev", ".bitmap"):  # without the first nobody looks for the others
                pack.with_suffix(kind).unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
