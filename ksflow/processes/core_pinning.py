"""Which cores judges and their sandboxes are pinned to, so that whatever else runs can keep off them."""

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from ksflow.home import text_of

CORES = "KSFLOW_CORES"
"""The environment variable that gives a child all the cores there are, whatever its parent keeps off."""


def _name(core: int) -> str:
    """A name that only one process can hold, and that is free again when it ends."""
    return f"\0ksflow-core-{core}"


def reserve_core(core: int) -> socket.socket | None:
    """Hold a core as long as the socket lives; None when another process has it."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(_name(core))
    except OSError:
        holder.close()
        return None
    return holder


def unreserved_cores() -> set[int]:
    """The cores of this process that no judge is pinned to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        return {core for core in os.sched_getaffinity(0) if asking.connect_ex(_name(core))}


def use_all_cores() -> None:
    """A child's first act: have the cores that `CORES` names."""
    if cores := os.environ.get(CORES):
        os.sched_setaffinity(0, map(int, cores.split()))


def move_off_cores(cores: Iterable[int], but: Iterable[int]) -> None:
    """Leave cores to a judge and its sandboxes, where there are more: this process and children, `but` some, move."""
    others = os.sched_getaffinity(0) - set(cores)
    moved = {int(task.name) for task in Path("/proc/self/task").iterdir()}
    for task in list(moved):
        moved |= {*map(int, text_of(Path(f"/proc/self/task/{task}/children")).split())} - set(but)
    for pid in moved if others else ():
        with contextlib.suppress(OSError):  # it has just ended, or may not be moved
            os.sched_setaffinity(pid, others)
