"""cgroups of one sandbox, where they can be created: limits of memory and processes of the whole tree (v1 or v2), and
one (v2 only) in which the candidate's process can be frozen.

A cgroup is created below the judge's own (v2: below the nearest ancestor that delegates its controllers), named after
the supervisor that made it, and removed by it. The next zygote removes those of killed supervisors.
"""

import contextlib
import itertools
import os
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ksflow.evaluation.processes import quota
from ksflow.evaluation.sandbox import linux
from ksflow.home import text_of

_PREFIX = "ksflow-"
_CANDIDATE = "candidate"
"""The cgroup within a sandbox's cgroup (v2) that can be frozen without the sandbox's first process."""
_PATIENCE_S = 2.0


class Parents(NamedTuple):
    """The folders in which sandboxes' cgroups are created: one with cgroup v2, else two."""

    memory: Path
    pids: Path
    unified: bool


class Group:
    """One sandbox's cgroups. Raises OSError if they cannot be created."""

    def __init__(self, parents: Parents, memory_bytes: int, processes: int) -> None:
        name = f"{_PREFIX}{os.getpid()}"
        self._memory, self._pids = parents.memory / name, parents.pids / name
        self._unified = parents.unified
        self._folders = {self._memory, self._pids}
        self._frozen: Path | None = None
        try:
            for folder in self._folders:
                folder.mkdir(exist_ok=True)
            _write(self._pids / "pids.max", processes)
            _write(self._memory / ("memory.max" if self._unified else "memory.limit_in_bytes"), memory_bytes)
        except OSError:
            self.remove()
            raise
        settings = {"memory.swap.max": 0, "memory.oom.group": 1} if self._unified else {}
        for name, value in (settings or {"memory.memsw.limit_in_bytes": memory_bytes}).items():
            linux.write_setting(self._memory / name, value)

    def add(self, pid: int) -> None:
        """Add a process, and with it its future descendants."""
        for folder in self._folders:
            _write(folder / "cgroup.procs", pid)

    def make_freezable(self, pid: int) -> Path | None:
        """Move the candidate's process to a cgroup that can be frozen, and return its folder.

        Writing 1 to `cgroup.freeze` in the folder freezes it, 0 resumes it. Returns None if version 2 is not mounted or
        not writable.
        """
        parent = self._memory if self._unified else _freezing_parent()
        if parent is None:
            return None
        self._frozen = parent / (_CANDIDATE if self._unified else self._memory.name)
        try:
            self._frozen.mkdir(exist_ok=True)
            _write(self._frozen / "cgroup.procs", pid)
        except OSError:
            return None
        return self._frozen

    def out_of_memory(self) -> bool:
        """Return whether a process was killed because the tree had used up its memory."""
        words = text_of(self._memory / ("memory.events" if self._unified else "memory.oom_control")).split()
        return any(word == "oom_kill" and count != "0" for word, count in itertools.pairwise(words))

    def remove(self) -> None:
        """Remove the cgroups, when their last process is gone."""
        end = time.monotonic() + _PATIENCE_S
        for folder in (*filter(None, [self._frozen]), *self._folders):
            while folder.exists() and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.002)


@cache
def parents() -> Parents | None:
    """Return where cgroups can be created, after trying it; None if nowhere."""
    with contextlib.suppress(OSError):
        memory, pids = _own("memory"), _own("pids")
        if hierarchies := Parents(memory, pids, unified=False) if memory and pids else _version_2():
            for parent in {hierarchies.memory, hierarchies.pids}:
                _remove_abandoned(parent)
            Group(hierarchies, 1 << 30, 64).remove()
            return hierarchies
    return None


@cache
def _freezing_parent() -> Path | None:
    """Return the v2 folder for freezable cgroups beside cgroups of version 1, None if there is none."""
    parent = _own("")
    if parent is None or not (os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)):
        return None
    _remove_abandoned(parent)
    return parent


def _version_2() -> Parents | None:
    own = _own("")
    for folder in [own, *own.parents] if own else []:
        handed_down = text_of(folder / "cgroup.subtree_control").split()
        if {"memory", "pids"} <= set(handed_down) and os.access(folder / "cgroup.procs", os.W_OK):
            return Parents(folder, folder, unified=True)
    return None


def _own(controller: str) -> Path | None:
    """Return this process' cgroup with a controller of version 1, or of version 2 for ""."""
    return next((own for names, own, _ in quota.memberships() if controller in (names or {""})), None)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}[0-9]*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX)).exists():
            for group in (folder / _CANDIDATE, folder):
                with contextlib.suppress(OSError):
                    group.rmdir()


def _write(file: Path, value: int) -> None:
    file.write_text(str(value), encoding="utf-8")
