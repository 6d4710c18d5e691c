"""Cores to which judges and their sandboxes are pinned, so that other processes can avoid them."""

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from ksflow.home import text_of

CORES = "KSFLOW_CORES"  # environment variable with all cores, for a child whose parent has moved off some


def _name(core: int) -> str:
    return f"\0ksflow-core-{core}"


def reserve_core(core: int) -> socket.socket | None:
    """Reserve a core as long as the socket lives; None if another process has it."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(_name(core))
    except OSError:
        holder.close()
        return None
    return holder


def unreserved_cores() -> set[int]:
    """Return the cores of this process to which no judge is pinned."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        return {core for core in os.sched_getaffinity(0) if asking.connect_ex(_name(core))}


def use_all_cores() -> None:
    """Move to the cores that `CORES` names; a child's first call."""
    if cores := os.environ.get(CORES):
        os.sched_setaffinity(0, map(int, cores.split()))


def pin(cores: Iterable[int], pid: int = 0) -> None:
    """Move a process (0: this one) to these cores, unless it has ended or may not be moved."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, cores)


def move_off_cores(cores: Iterable[int], but: Iterable[int]) -> None:
    """Move this process and its children, `but` some, off these cores, if others are left."""
    others = os.sched_getaffinity(0) - set(cores)
    moved = {int(task.name) for task in Path("/proc/self/task").iterdir()}
    for task in list(moved):
        moved |= {*map(int, text_of(Path(f"/proc/self/task/{task}/children")).split())} - set(but)
    for pid in moved if others else ():
        pin(others, pid)
