"""The layers that a candidate's process puts on itself, before any of its code is loaded.

Each layer either holds or the box does not start; one that this machine does not have is left out. Namespaces and the
root directory are put on before, by the init of the box.
"""

import contextlib
import glob
import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

from ksflow.sandbox import cgroup, counters, landlock, levels, linux, policy, root, seccomp

_FIRST_UID, _UIDS = 61184, 4336
"""systemd's range for throw-away users."""
_FILE_MB = 256
_FILES = 256
PREFIX = "ksflow-box-"
"""Of a box's folder among the temporary ones."""
_STALE_S = 2 * 86400
_NO_CORE = 1
"""Too little for a file; and unlike 0 it also keeps the kernel from calling a program that collects them."""
PROCESSES = 64
"""How many processes and threads a box may have, where its order does not say."""
_COMPILING = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
}
"""For `torch.compile`, which begins anew in every box: no pool of processes, no compiling of headers that are used
once, no trying out of vector instructions that the processor says it has."""
_LANDLOCK_READS = ("/proc", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts")


def own_uid() -> int | None:
    """The throw-away user of the box that this process keeps; None where boxes run as whoever runs the judge.

    Two boxes alive at once hardly ever share one.
    """
    return None if os.getuid() else _FIRST_UID + os.getpid() % _UIDS


def prepare() -> None:
    """In the process that boxes are forked from: find out what each needs to know, remove what killed ones left."""
    _sweep()
    cgroup.places()
    landlock.version()
    root.readable()
    counters.texts()
    counters.folders()
    counters.system()
    seccomp.prepare()
    _closed_home()


def _sweep() -> None:
    """Folders of boxes whose judge and supervisor were killed at once; none that is in use is that old."""
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            found = os.lstat(folder)
            if found.st_mtime < time.time() - _STALE_S and found.st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def confine(order: dict[str, Any], artefacts: list[int]) -> int | None:
    """Put every layer on this process. `artefacts`: descriptors of files that it may load.

    What is returned asks for every process that this one or its children start (see `seccomp.restrict`).
    """
    folder, uid, level = order["folder"], order["uid"], order["level"]
    private = level in levels.PRIVATE
    if order["core"] is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {order["core"]})
    _limit(order)
    if uid is not None:
        _become(
            uid,
            folder,
            _groups(order.get("devices", ())),
            reader=not private and order["language"] == "python" and _closed_home(),
        )
    elif private:
        linux.no_capabilities()
    os.chdir(folder)
    linux.set_dumpable(True)
    _prefer_for_killing()
    linux.die_with_parent()
    linux.no_new_privileges()
    if level == "landlock":
        readable = (*root.readable(), *root.settings(), *_LANDLOCK_READS, *order.get("extra", ()))
        landlock.restrict(
            readable, (folder, *root.devices(), *order.get("devices", ()), *order.get("writable", ())), artefacts
        )
    kind = _kind(order)
    listener = seccomp.restrict(private, kind not in policy.PROGRAMS, kind) if seccomp.supported() else None
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = folder
    os.environ |= _COMPILING
    tempfile.tempdir = None  # it may have been looked up before
    return listener


def _kind(order: dict[str, Any]) -> str:
    """Which of `policy.KINDS` the box is."""
    if order["language"] == "tool":
        return "profiler" if order.get("profiler") else "tool"
    return "device" if order.get("devices") else "kernel"


def _groups(files: Iterable[str]) -> list[int]:
    """Those whose members may use a GPU's files, where not everybody may: AMD's are the group `render`'s."""
    found = map(os.stat, files)
    return sorted({file.st_gid for file in found if file.st_gid and file.st_mode & 0o066 == 0o060})


def _become(uid: int, folder: str, groups: list[int], reader: bool) -> None:
    os.chown(folder, uid, uid)
    try:
        os.setgroups(groups)
    except OSError:  # a namespace of users that does not know them
        os.setgroups([])
    os.setresgid(uid, uid, uid)
    if reader:
        linux.keep_capabilities()
    os.setresuid(uid, uid, uid)
    if reader:
        linux.only_read_search()


@cache
def _closed_home() -> bool:
    """Whether a throw-away user could not import what we can: the interpreter lies in a home closed to others."""
    folders = {parent for path in root.readable() for parent in _parents(os.path.realpath(path))}
    return not all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)


def _parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return found


def _prefer_for_killing() -> None:
    """When memory runs out it is a candidate that goes, not what watches it."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _limit(order: dict[str, Any]) -> None:
    gpu = order.get("device")  # its driver reserves address space by the terabyte
    others = _tasks_of(os.getuid()) if order["uid"] is None and order["level"] not in levels.PRIVATE else 0
    for kind, most in (
        (resource.RLIMIT_AS, resource.RLIM_INFINITY if order["grouped"] or gpu else _address_space(order)),
        (resource.RLIMIT_CPU, order["cpu_s"]),
        (resource.RLIMIT_FSIZE, order.get("file_mb", _FILE_MB) << 20),
        (resource.RLIMIT_NOFILE, order.get("open_files", _FILES)),
        (resource.RLIMIT_NPROC, others + order.get("processes", PROCESSES)),
        (resource.RLIMIT_CORE, _NO_CORE),
    ):
        ceiling = resource.getrlimit(kind)[1]
        if most == resource.RLIM_INFINITY:
            continue
        hard = most + (2 if kind == resource.RLIMIT_CPU else 0)  # first a signal that says why
        hard = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
        resource.setrlimit(kind, (min(most, hard), hard))


def _address_space(order: dict[str, Any]) -> int:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    return used + shared_bytes(order) + (int(order["memory_mb"]) << 20)


def shared_bytes(order: dict[str, Any]) -> int:
    """What the judge and the box have in common."""
    return int(order.get("inputs_bytes", 0) + order.get("outputs_bytes", 0))


def _tasks_of(uid: int) -> int:
    """How many threads a user has: the kernel counts them all against each of the user's processes."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count
