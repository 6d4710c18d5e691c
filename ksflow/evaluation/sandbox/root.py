"""A root directory for a sandbox: what its programs need, read-only, and nothing else of the machine.

System folders, the interpreter and its packages, a handful of devices, a new /proc without the machine's counters, and
small private /tmp and /dev/shm. Anything else does not exist inside: homes, keys, the project, other sandboxes. If
ksflow is installed among the packages, only the part that runs in sandboxes is shown.
"""

import contextlib
import glob
import os
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ksflow.evaluation.sandbox import counters, linux

INSIDE = "/tmp/box"  # the sandbox's own folder
DISK_MB = 512  # default of an order
_SHOWN = counters.MACHINE_FILES["shown"]
_SYSTEM, _SETTINGS, DEVICES = _SHOWN["system"], _SHOWN["settings"], _SHOWN["devices"]
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_ROCM = "/opt/rocm*"
_RUNS_INSIDE = os.path.dirname(os.path.realpath(__file__))
_PROGRAM = os.path.dirname(os.path.dirname(_RUNS_INSIDE))  # the package ksflow
_SHARED_MB = 64
BIND, WITH_SUBMOUNTS, PRIVATE = 0x1000, 0x4000, 0x40000
READ_ONLY, NO_SUID, NO_DEVICES, NO_PROGRAMS, AGAIN = 1, 2, 4, 8, 32


@cache
def readable_paths() -> tuple[str, ...]:
    """Return the paths that a sandbox may read beyond the settings, none inside another."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    packages = [path for path in sys.path if path.endswith("-packages")]
    own = [sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), os.path.dirname(__file__)]
    wanted = [
        path for path in [*own, *packages, *libraries, *glob.glob(_ROCM)] if os.path.isabs(path) and os.path.isdir(path)
    ]
    folders: list[str] = []
    for path in sorted({os.path.abspath(path) for path in wanted}):
        if path != "/" and not any(is_within(path, other) for other in [*_SYSTEM, *folders]):
            folders.append(path)
    return (*filter(os.path.exists, _SYSTEM), *folders)


def readable_files(extra: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the same and `extra` without ksflow's own files, and the folders of which only names may be read; for
    rules that apply to everything in a folder."""
    if _PROGRAM in extra:
        return (*readable_paths(), *extra), ()
    paths, kept, listed = [os.path.realpath(path) for path in (*readable_paths(), *extra)], [_RUNS_INSIDE], []
    while paths:
        path = paths.pop()
        if not is_within(_PROGRAM, os.path.realpath(path)):
            kept.append(path)
        elif path != _PROGRAM and not os.path.islink(path):
            listed.append(path)
            paths += (entry.path for entry in os.scandir(path))
    return (*kept,), (*listed,)


def settings() -> tuple[str, ...]:
    """Return the files of /etc that libraries read."""
    return tuple(filter(os.path.exists, _SETTINGS))


def build(order: dict[str, Any], user: int) -> None:
    """Move this process, alone in new namespaces, into a root of its own.

    order: `folder`, whose files are copied before it is mounted over; `disk_mb`; `extra`, further readable folders;
    `writable` folders of the machine; `devices`, further files of /dev, such as a GPU's. user: the sandbox's user id.
    """
    root = order["folder"]
    sources = {entry.name: Path(entry).read_bytes() for entry in os.scandir(root)}
    linux.mount("", "/", None, WITH_SUBMOUNTS | PRIVATE)
    linux.mount("box", root, "tmpfs", NO_SUID, "size=4m,mode=755")
    mount_temporary(f"{root}/tmp", order.get("disk_mb", DISK_MB))
    extra = [path for path in order.get("extra", ()) if not any(is_within(path, other) for other in readable_paths())]
    for path in [*readable_paths(), *extra]:
        show(root, path, read_only=True)
    if _PROGRAM not in order.get("extra", ()):
        _hide_program(root)
    for path in order.get("writable", ()):
        show(root, path, read_only=False)
    os.makedirs(f"{root}/etc", exist_ok=True)
    for path in settings():
        with contextlib.suppress(OSError):
            shutil.copyfile(path, root + path)
    own = {"passwd": f"box:x:{user}:{user}::{INSIDE}:/bin/sh\n", "hosts": "127.0.0.1 localhost\n"}
    for name, text in own.items():
        Path(root, "etc", name).write_text(text, encoding="utf-8")
    devices(f"{root}/dev", order.get("devices", ()))
    os.mkdir(f"{root}/proc")
    linux.mount("proc", f"{root}/proc", "proc", NO_SUID | NO_DEVICES | NO_PROGRAMS)
    counters.cover(root)
    linux.change_root(root)
    os.makedirs(INSIDE, exist_ok=True)
    for name, data in sources.items():
        Path(INSIDE, name).write_bytes(data)
    for path in (INSIDE, *(f"{INSIDE}/{name}" for name in sources)):
        os.chown(path, user, user)
    linux.mount("", "/", None, AGAIN | BIND | READ_ONLY | NO_SUID)


def is_full() -> bool:
    """Return whether one of the private file systems is full."""
    rooms = [os.statvfs(path) for path in ("/tmp", "/dev/shm")]
    return any(not status.f_bavail or not status.f_favail for status in rooms)


def show(root: str, path: str, read_only: bool) -> None:
    """Show a file or folder of the machine inside; the system's links stay links."""
    target = root + path
    if os.path.islink(path) and path in _SYSTEM:
        os.symlink(os.readlink(path), target)
        return
    _make_target(path, target)
    linux.mount(path, target, None, BIND | WITH_SUBMOUNTS)
    linux.seal_mount(target, read_only)


def _hide_program(root: str) -> None:
    """Hide ksflow wherever it is visible, except for the part that runs in sandboxes."""
    for path in readable_paths():
        real = os.path.realpath(path)
        if not is_within(_PROGRAM, real) or (os.path.islink(path) and path in _SYSTEM):
            continue  # a link is shown as a link: its target is another path
        hidden, inside = (
            root + os.path.normpath(f"{path}/{os.path.relpath(one, real)}") for one in (_PROGRAM, _RUNS_INSIDE)
        )
        linux.mount("box", hidden, "tmpfs", NO_SUID, "size=64k,mode=755")
        os.makedirs(inside, 0o755)
        linux.mount(_RUNS_INSIDE, inside, None, BIND | WITH_SUBMOUNTS)
        linux.seal_mount(inside, read_only=True)
        linux.mount("", hidden, None, AGAIN | BIND | READ_ONLY | NO_SUID)


def _make_target(path: str, target: str) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "wb").close()


def devices(folder: str, extra: Sequence[str]) -> None:
    """Create a /dev with the common devices and some more of the machine's."""
    os.makedirs(f"{folder}/shm")
    for path in (*DEVICES, *extra):
        target = f"{folder}/{os.path.relpath(path, '/dev')}"
        _make_target(path, target)
        linux.mount(path, target, None, BIND)
        if path not in extra:  # else the times of a file writable by all could be set
            linux.seal_mount(target, read_only=True, devices=True)
    for name, link in _LINKS.items():
        os.symlink(link, f"{folder}/{name}")
    mount_temporary(f"{folder}/shm", _SHARED_MB)


def mount_temporary(folder: str, size_mb: int) -> None:
    """Mount a small private file system."""
    os.makedirs(folder, exist_ok=True)
    linux.mount("box", folder, "tmpfs", NO_SUID | NO_DEVICES, f"size={size_mb}m,nr_inodes=16k,mode=1777")


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or lies in it."""
    return path == folder or path.startswith(f"{folder}/")
