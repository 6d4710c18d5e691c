"""Control groups of one box, where they can be made: memory and processes of the whole tree (v1 or v2), and one (v2
only) in which the candidate's process can be frozen.

A group is made below the judge's own (v2: below the nearest ancestor that hands its controllers down), named after the
supervisor that made it, and removed by it. Those of supervisors that were killed are removed by the next zygote.
"""

import contextlib
import itertools
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PREFIX = "ksflow-"
_CANDIDATE = "candidate"
"""The group within a box's group (v2) that can be frozen without the box's first process."""
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Places:
    """The folders that boxes' groups are made in."""

    memory: Path
    pids: Path
    unified: bool

    @property
    def all(self) -> set[Path]:
        """One with cgroup v2, else two."""
        return {self.memory, self.pids}


class Group:
    """One box's groups."""

    def __init__(self, places: Places, memory_bytes: int, processes: int) -> None:
        name = f"{_PREFIX}{os.getpid()}"
        self._memory, self._pids = places.memory / name, places.pids / name
        self._unified = places.unified
        self._folders = {self._memory, self._pids}
        self._frozen: Path | None = None
        try:
            for folder in self._folders:
                folder.mkdir(exist_ok=True)
            self._limit(memory_bytes, processes)
        except OSError:
            self.remove()
            raise

    def add(self, pid: int) -> None:
        """Take a process in, and with it all that it will start."""
        for folder in self._folders:
            _write(folder / "cgroup.procs", pid)

    def hold(self, pid: int) -> Path | None:
        """Put the candidate's process, and all that it will start, where it can be frozen: by 1 in `cgroup.freeze` of
        the folder that is returned, until 0 is written. None where version 2 is not mounted or cannot be written.
        """
        place = self._memory if self._unified else _freezing_place()
        if place is None:
            return None
        self._frozen = place / (_CANDIDATE if self._unified else self._memory.name)
        try:
            self._frozen.mkdir(exist_ok=True)
            _write(self._frozen / "cgroup.procs", pid)
        except OSError:
            return None
        return self._frozen

    def out_of_memory(self) -> bool:
        """Whether a process was killed because the tree had used up its memory."""
        name = "memory.events" if self._unified else "memory.oom_control"
        with contextlib.suppress(OSError):
            words = (self._memory / name).read_text().split()
            return any(word == "oom_kill" and count != "0" for word, count in itertools.pairwise(words))
        return False

    def remove(self) -> None:
        """Remove the groups, when their last process is gone."""
        end = time.monotonic() + _PATIENCE_S
        for folder in ([self._frozen] if self._frozen else []) + list(self._folders):
            while folder.exists() and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.002)

    def _limit(self, memory_bytes: int, processes: int) -> None:
        _write(self._pids / "pids.max", processes)
        if self._unified:
            _write(self._memory / "memory.max", memory_bytes)
            _try_write(self._memory / "memory.swap.max", 0)
            _try_write(self._memory / "memory.oom.group", 1)
        else:
            _write(self._memory / "memory.limit_in_bytes", memory_bytes)
            _try_write(self._memory / "memory.memsw.limit_in_bytes", memory_bytes)


@cache
def places() -> Places | None:
    """Where groups can be made here, tried out; None where they can't."""
    with contextlib.suppress(OSError):
        if found := _version_1() or _version_2():
            for place in found.all:
                _sweep(place)
            Group(found, 1 << 30, 64).remove()
            return found
    return None


@cache
def _freezing_place() -> Path | None:
    """The folder in which groups that can be frozen are made beside groups of version 1; None where there is none."""
    place = _folder("cgroup2", "")
    if place is None or not (os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK)):
        return None
    _sweep(place)
    return place


def _version_1() -> Places | None:
    folders = [_folder("cgroup", controller) for controller in ("memory", "pids")]
    memory, pids = folders
    return Places(memory, pids, unified=False) if memory and pids else None


def _version_2() -> Places | None:
    own = _folder("cgroup2", "")
    for folder in [own, *own.parents] if own else []:
        with contextlib.suppress(OSError):
            handed_down = (folder / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(handed_down) and os.access(folder / "cgroup.procs", os.W_OK):
                return Places(folder, folder, unified=True)
    return None


def _folder(kind: str, controller: str) -> Path | None:
    """This process' own group of a controller, or the top one that is to be seen."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for mounted in _mounted(kind, controller):
            own = mounted / path.lstrip("/")
            return own if own.is_dir() else mounted
    return None


def _mounted(kind: str, controller: str) -> list[Path]:
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, mounted_kind, options, *_ = line.split()
        if mounted_kind == kind and (not controller or controller in options.split(",")):
            found.append(Path(folder))
    return found


def _sweep(place: Path) -> None:
    """Remove the groups of supervisors that are no more."""
    for folder in place.glob(f"{_PREFIX}[0-9]*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX)).exists():
            for group in (folder / _CANDIDATE, folder):
                with contextlib.suppress(OSError):
                    group.rmdir()


def _write(file: Path, value: int) -> None:
    file.write_text(str(value))


def _try_write(file: Path, value: int) -> None:
    with contextlib.suppress(OSError):
        _write(file, value)
