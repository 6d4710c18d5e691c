"""CPU and memory limits of this process' cgroups, and how often the CPU quota stopped it.

A container's quota (Docker's `--cpus`, Kubernetes' limits) stops all threads for the rest of a period, usually of 0.1
s, once it is used up: a time measured across such a stop is meaningless. Standard library only.
"""

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ksflow.home import text_of

_UNLIMITED_BYTES = 1 << 60


@cache
def folders() -> tuple[Path, ...]:
    """Return the cgroups of this process, of version 1 and 2, its own before its ancestors."""
    found: list[Path] = []
    with contextlib.suppress(ValueError):
        for _, own, top in memberships():
            found += [own, *(folder for folder in own.parents if folder.is_relative_to(top))]
    return tuple(dict.fromkeys(found))


def memberships() -> Iterator[tuple[set[str], Path, Path]]:
    """Yield the controllers (none in version 2), the folder and the mount of each cgroup of this process."""
    mounts = [line.split() for line in text_of(Path("/proc/self/mounts")).splitlines()]
    for line in text_of(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        controllers = {*filter(None, names.split(","))}
        for _, top, kind, options, *_ in mounts:
            if kind == ("cgroup" if controllers else "cgroup2") and controllers <= {*options.split(",")}:
                own = Path(top, path.lstrip("/"))
                # a cgroup namespace shows its own group as the top
                yield controllers, own if own.is_dir() else Path(top), Path(top)


@cache
def cores(groups: tuple[Path, ...] | None = None) -> float | None:
    """Return how many cores' time the quota allows, as of the first call; None if there is no limit."""
    allowed = []
    for folder in folders() if groups is None else groups:
        with contextlib.suppress(ValueError):
            if (file := folder / "cpu.max").exists():
                quota, period = text_of(file).split()
            else:
                quota, period = (text_of(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota != "max" and int(quota) > 0:
                allowed.append(int(quota) / int(period))
    return min((most for most in allowed if most < (os.cpu_count() or 1)), default=None)


def stops(groups: tuple[Path, ...] | None = None) -> int:
    """Return how often the quota has stopped the group so far."""
    count = 0
    for folder in folders() if groups is None else groups:
        with contextlib.suppress(ValueError):
            words = text_of(folder / "cpu.stat").split()
            count += int(dict(zip(words[::2], words[1::2], strict=True)).get("nr_throttled", 0))
    return count


def limits(groups: tuple[Path, ...] | None = None) -> str:
    """Describe the limits of this process; "" if there are none."""
    groups, found = folders() if groups is None else groups, []
    machine, mine = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    if (most := cores(groups)) is not None:
        found.append(f"a quota of {most:.3g} cores' CPU time (cpu.max), which stops kernels while they are timed")
    if mine < machine:
        found.append(f"{mine} of {machine} cores (cpuset or affinity)")
    for folder in groups:
        with contextlib.suppress(ValueError):
            if (most_bytes := int(text_of(folder / "memory.high"))) < _UNLIMITED_BYTES:
                found.append(f"{most_bytes / 2**30:.3g} GiB before it is slowed down (memory.high)")
    return "; ".join(found)
