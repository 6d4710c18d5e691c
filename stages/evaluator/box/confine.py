"""The layers around a candidate, put on by its own process before any of its code is loaded.

Each layer either holds or the box does not start; the one that needs root is left out without it. More layers
(namespaces, landlock, seccomp) belong here, after the limits.
"""

import contextlib
import os
import resource
import stat
import sys
import sysconfig
from enum import StrEnum
from pathlib import Path
from typing import Any

from ksflow.stages.evaluator.box import native

_FIRST_UID, _UIDS = 61184, 4336
"""systemd's range for throw-away users."""
_FILE_BYTES = 64 << 20
_FILES = 256
_PROCESSES = 64


class Identity(StrEnum):
    """Whom a candidate runs as."""

    USER = "user"
    """Whoever runs the judge."""
    OWN = "own uid"
    """A throw-away user; needs root."""
    OWN_READER = "own uid, reads all files"
    """The same, where the interpreter lies in a home that is closed to other users."""


def own_uid(box: int) -> int | None:
    """The throw-away user of the box with this process id; None where boxes run as whoever runs the judge.

    Two boxes alive at once hardly ever share one.
    """
    return None if os.getuid() else _FIRST_UID + box % _UIDS


def confine(order: dict[str, Any]) -> None:
    """Put every layer on this process."""
    folder = order["folder"]
    os.chdir(folder)
    if order["core"] is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {order["core"]})
    identity = _identity(order["language"])
    _limit(order, identity)
    uid = own_uid(os.getpid())
    if uid is not None:
        _become(uid, folder, identity is Identity.OWN_READER)
    native.die_with_parent()
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = folder


def _become(uid: int, folder: str, reader: bool) -> None:
    os.chown(folder, uid, uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    if reader:
        native.keep_capabilities()
    os.setresuid(uid, uid, uid)
    if reader:
        native.only_read_search()
    native.set_dumpable(True)


def _identity(language: str) -> Identity:
    """Throw-away users can import what we can, unless the interpreter lies under a closed home."""
    if os.getuid():
        return Identity.USER
    homes = {sys.prefix, sys.base_prefix, sysconfig.get_path("purelib")}
    folders = {folder for home in homes for folder in Path(home).resolve().parents}
    open_to_all = all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)
    return Identity.OWN if open_to_all or language == "cpp" else Identity.OWN_READER


def _limit(order: dict[str, Any], identity: Identity) -> None:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    others = _tasks_of(os.getuid()) if identity is Identity.USER else 0
    for kind, most in (
        (resource.RLIMIT_AS, used + (order["memory_mb"] << 20)),
        (resource.RLIMIT_CPU, order["cpu_s"]),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_NPROC, others + _PROCESSES),
        (resource.RLIMIT_CORE, 0),
    ):
        ceiling = resource.getrlimit(kind)[1]
        hard = most + (2 if kind == resource.RLIMIT_CPU else 0)  # first a signal that says why
        hard = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
        resource.setrlimit(kind, (min(most, hard), hard))


def _tasks_of(uid: int) -> int:
    """How many threads a user has: the kernel counts them all against each of the user's processes."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count
