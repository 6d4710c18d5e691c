"""The few Linux calls that Python does not offer."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_CHILD_SUBREAPER = 36
_CAPABILITY_VERSION_3 = 0x20080522
_DAC_READ_SEARCH = 1 << 2

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_dumpable(allowed: bool) -> None:
    """Whether processes of the same user may read this one's memory and environment."""
    _libc.prctl(_PR_SET_DUMPABLE, int(allowed), 0, 0, 0)


def keep_capabilities() -> None:
    """Let root's capabilities survive the next change of user, as permitted ones."""
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)


def only_read_search() -> None:
    """Give up every capability but that of reading files and searching folders."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(_DAC_READ_SEARCH, _DAC_READ_SEARCH, 0, 0, 0, 0)
    if _libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def descendants(root: int) -> list[int]:
    """Every process below `root`, nearest first."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [root]
    while queue:
        children = parents.get(queue.pop(0), [])
        found += children
        queue += children
    return found
