"""Which cores judges and their boxes sit on, so that whatever else runs can keep off them. Imports nothing of ours."""

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

CORES = "KSFLOW_CORES"
"""The environment variable that gives a child all the cores there are, whatever its parent keeps off."""


def reserve_core(core: int) -> socket.socket | None:
    """Hold a core as long as the socket lives; None when another process has it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(_name(core))
    except OSError:
        name.close()
        return None
    return name


def unreserved_cores() -> set[int]:
    """The cores of this process that no judge sits on."""
    return {core for core in os.sched_getaffinity(0) if not _taken(core)}


def everywhere() -> str:
    """For `CORES`: the cores of this process, before it keeps off any."""
    return " ".join(map(str, sorted(os.sched_getaffinity(0))))


def use_all_cores() -> None:
    """A child's first act: have the cores that `CORES` names."""
    if cores := os.environ.get(CORES):
        os.sched_setaffinity(0, map(int, cores.split()))


def move_off_cores(cores: Iterable[int], but: Iterable[int]) -> None:
    """Leave cores to a judge and its boxes, where there are more: this process and its children, `but` some, move."""
    others = os.sched_getaffinity(0) - set(cores)
    own = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    children = {int(pid) for task in own for pid in _text(f"/proc/self/task/{task}/children").split()}
    for pid in (*own, *(children - set(but))):
        with contextlib.suppress(OSError):  # it has just ended, or may not be moved
            if others:
                os.sched_setaffinity(pid, others)


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


def _taken(core: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(_name(core)) == 0


def _name(core: int) -> str:
    """A name that only one process can hold, and that is free again when it ends."""
    return f"\0ksflow-core-{core}"
