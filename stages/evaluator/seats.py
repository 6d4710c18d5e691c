"""Which cores judges and their boxes sit on, so that whatever else runs can keep off them. Imports nothing of ours."""

import os
import socket


def take(core: int) -> socket.socket | None:
    """Hold a core as long as the socket lives; None when another process has it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(_name(core))
    except OSError:
        name.close()
        return None
    return name


def spare() -> set[int]:
    """The cores of this process that no judge sits on."""
    return {core for core in os.sched_getaffinity(0) if not _taken(core)}


def _taken(core: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(_name(core)) == 0


def _name(core: int) -> str:
    """A name that only one process can hold, and that is free again when it ends."""
    return f"\0ksflow-core-{core}"
