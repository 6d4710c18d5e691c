"""The layers that a candidate's process applies to itself before it loads the candidate.

If a layer fails, the sandbox does not start; a layer that this machine lacks is left out. `init` has applied namespaces
and the root directory before.
"""

import contextlib
import glob
import os
import resource
import shutil
import stat
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from ksflow.evaluation.processes import core_pinning
from ksflow.evaluation.sandbox import cgroup, counters, landlock, levels, linux, policy, root, seccomp

_FIRST_UID, _UIDS = 61184, 4336  # systemd's range for throw-away users
_FILE_MB = 256
_FILES = 256
PREFIX = "ksflow-box-"  # of the names of sandboxes' temporary folders
_STALE_S = 2 * 86400
_NO_CORE = 1  # too small for a file, and unlike 0 it also keeps the kernel from starting a core collector
PROCESSES = 64  # default limit of processes and threads
_ARENA_MB = 144  # address space of a further thread: its stack, and what malloc reserves for it
_COMPILING = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
}
"""For `torch.compile`, which starts without a cache in every candidate's sandbox: no pool of processes, no precompiled
headers, no tests of the processor's vector instructions."""
_UNASKED = "on; missing: questions (Linux 5.5): kernels may start processes while they are timed, so nothing is ranked"
_LANDLOCK_READS = ("/proc", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts")


def own_uid() -> int | None:
    """Return the throw-away user of this supervisor's sandbox, None if sandboxes run as the judge's user."""
    return None if os.getuid() else _FIRST_UID + os.getpid() % _UIDS


def shared_bytes(order: dict[str, Any]) -> int:
    """Return the size of the memory that judge and sandbox share."""
    return int(order.get("inputs_bytes", 0) + order.get("outputs_bytes", 0))


def prepare() -> None:
    """Fill the caches that forked sandboxes need, and remove abandoned folders."""
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            status = os.lstat(folder)
            if status.st_mtime < time.time() - _STALE_S and status.st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)
    cgroup.parents()
    landlock.version()
    root.readable_paths()
    counters.texts()
    counters.folders()
    counters.system()
    seccomp.prepare()
    _closed_home()


def confine(order: dict[str, Any], artefacts: list[int]) -> int | None:
    """Apply every layer to this process. `artefacts`: descriptors of files that it may load.

    Returns the listener's descriptor (see `seccomp.restrict`).
    """
    folder, uid, level = order["folder"], order["uid"], order["level"]
    private = level in levels.PRIVATE
    if order["cores"]:
        core_pinning.pin(order["cores"])
    _limit(order)
    if uid is not None:
        _become(order, reader=not private and order["language"] == "python" and _closed_home())
    elif private:
        linux.set_capabilities(0)
    os.chdir(folder)
    linux.set_dumpable(True)
    linux.write_setting(linux.FIRST_TO_DIE, 1000)  # out of memory, the candidate is killed, not its supervisor
    linux.die_with_parent()
    linux.no_new_privileges()
    if level == "landlock":
        files, listed = root.readable_files(order.get("extra", ()))
        readable = (*files, *root.settings(), *_LANDLOCK_READS)
        writable = (folder, *root.DEVICES, *order.get("devices", ()), *order.get("writable", ()))
        landlock.restrict(readable, writable, artefacts, listed=listed)
    if order["language"] == "tool":
        kind = "profiler" if order.get("profiler") else "tool"
    else:
        kind = "device" if order.get("devices") else "kernel"
    listener = seccomp.restrict(private, kind not in policy.PROGRAMS, kind) if seccomp.is_supported() else None
    linux.keep_freed_memory()
    os.environ |= {"HOME": folder, "TMPDIR": folder, **_COMPILING}
    if "compile_cache" in order and os.access(order["compile_cache"], os.W_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = order["compile_cache"]
    tempfile.tempdir = None  # it may be cached
    return listener


def _become(order: dict[str, Any], reader: bool) -> None:
    """Become the sandbox's user, in the groups of GPU files that are not public (AMD's: `render`)."""
    uid = order["uid"]
    files = map(os.stat, order.get("devices", ()))
    groups = sorted({file.st_gid for file in files if file.st_gid and file.st_mode & 0o066 == 0o060})
    os.chown(order["folder"], uid, uid)
    try:
        os.setgroups(groups)
    except OSError:  # a user namespace that does not know them
        os.setgroups([])
    os.setresgid(uid, uid, uid)
    if reader:
        linux.keep_capabilities()
    os.setresuid(uid, uid, uid)
    if reader:
        linux.set_capabilities(linux.READ_ANY_FILE)


@cache
def _closed_home() -> bool:
    """Return whether the interpreter lies in a home closed to other users, who could not import from it."""
    folders = {parent for path in root.readable_paths() for parent in Path(os.path.realpath(path)).parents}
    return not all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)


def _limit(order: dict[str, Any]) -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    memory = used + shared_bytes(order) + (int(order["memory_mb"]) << 20)
    memory += max(len(order["cores"]) - 1, 0) * (_ARENA_MB << 20)
    # the cgroup limits memory where there is one; a GPU's driver reserves terabytes of address space
    space = resource.RLIM_INFINITY if order["grouped"] or order.get("device") else memory
    others = _tasks_of(os.getuid()) if order["uid"] is None and order["level"] not in levels.PRIVATE else 0
    for kind, most in (
        (resource.RLIMIT_AS, space),
        (resource.RLIMIT_CPU, order["cpu_s"]),
        (resource.RLIMIT_FSIZE, order.get("file_mb", _FILE_MB) << 20),
        (resource.RLIMIT_NOFILE, order.get("open_files", _FILES)),
        (resource.RLIMIT_NPROC, others + order.get("processes", PROCESSES)),
        (resource.RLIMIT_CORE, _NO_CORE),
    ):
        ceiling = resource.getrlimit(kind)[1]
        if most == resource.RLIM_INFINITY:
            continue
        hard = most + (2 if kind == resource.RLIMIT_CPU else 0)  # a signal that tells the cause comes first
        hard = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
        resource.setrlimit(kind, (min(most, hard), hard))


def _tasks_of(uid: int) -> int:
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def describe_layers(level: str, grouped: bool) -> dict[str, str]:
    """Return layer -> what it consists of here, or why it is missing."""
    private, filtered, version = level in levels.PRIVATE, seccomp.is_supported(), landlock.version()
    shared_root = "landlock's allow-list instead" if level == "landlock" else "the machine's own files"
    missing_version = f"missing: version {version}" if version else "missing: none"
    parents = cgroup.parents() if grouped else None
    filters = "missing: no filters for this machine or kernel"
    if filtered:
        filters = "on" if seccomp.can_ask() else _UNASKED
    groups = f"control groups v{2 if parents and parents.unified else 1}: memory and processes of the tree"
    return {
        "uid": "own, thrown away" if os.getuid() == 0 else "missing: only root can change user",
        "namespaces": "users, " * (level == "userns") + "processes, mounts, network, ipc, host name"
        if private
        else "missing: none at this level",
        "root": "own, allow-list, small private /tmp" if private else f"missing: {shared_root}",
        "network": "own namespace, empty" if private else "no sockets" if filtered else "missing: open",
        "seccomp": filters,
        "landlock": f"version {version}" if level == "landlock" else "not needed" if private else missing_version,
        "limits": f"{groups}; rlimits for the rest"
        if parents
        else "rlimits, for each process; missing: control groups that can be written",
    }
