"""A root directory of a box's own: what its programs need, read-only, and nothing else of the machine.

System folders, the interpreter and its packages, a handful of devices, a new /proc without the machine's counters, and
small private /tmp and /dev/shm. What is not listed here does not exist inside: homes, keys, the project, other boxes.
"""

import contextlib
import glob
import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache

from ksflow.sandbox import counters, linux

INSIDE = "/tmp/box"
"""The box's own folder."""
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/sys/devices/system",
    "/etc/alternatives",
    "/etc/ld.so.conf.d",
)
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/locale.alias", "/etc/localtime")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_ROCM = "/opt/rocm*"
_SHARED_MB = 64
_BIND, _WITH_SUBMOUNTS, _PRIVATE = 0x1000, 0x4000, 0x40000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _AGAIN = 1, 2, 4, 8, 32


@cache
def readable() -> tuple[str, ...]:
    """What a box may read beyond the settings, none inside another."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    packages = [path for path in sys.path if path.endswith("-packages")]
    own = [sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), os.path.dirname(__file__)]
    wanted = [
        path for path in [*own, *packages, *libraries, *glob.glob(_ROCM)] if os.path.isabs(path) and os.path.isdir(path)
    ]
    found: list[str] = []
    for path in sorted({os.path.abspath(path) for path in wanted}):
        if path != "/" and not any(_within(path, other) for other in [*_SYSTEM, *found]):
            found.append(path)
    return (*filter(os.path.exists, _SYSTEM), *found)


def covered(path: str) -> bool:
    """Whether a path lies in what every box may read."""
    return any(_within(path, other) for other in readable())


def settings() -> tuple[str, ...]:
    """Files of /etc that libraries read."""
    return tuple(filter(os.path.exists, _SETTINGS))


def devices() -> tuple[str, ...]:
    """Those that anybody may use."""
    return tuple(f"/dev/{name}" for name in _DEVICES)


@dataclass(frozen=True)
class Wishes:
    """What a box's root has of its own."""

    folder: str
    """Its files are copied in; it is mounted over."""
    user: int
    """Whose box it is."""
    disk_mb: int
    extra: tuple[str, ...] = ()
    """Further folders to read."""
    writable: tuple[str, ...] = ()
    """Folders of the machine to write to."""
    devices: tuple[str, ...] = ()
    """What else it needs of /dev: a GPU's files."""


def build(wishes: Wishes) -> None:
    """Move this process, alone in new namespaces, into a root of its own."""
    root, sources = wishes.folder, _contents(wishes.folder)
    linux.mount("", "/", None, _WITH_SUBMOUNTS | _PRIVATE)
    linux.mount("box", root, "tmpfs", _NO_SUID, "size=4m,mode=755")
    _temporary(f"{root}/tmp", wishes.disk_mb)
    for path in [*readable(), *(path for path in wishes.extra if not covered(path))]:
        _bring(root, path, read_only=True)
    for path in wishes.writable:
        _bring(root, path, read_only=False)
    _settings(root, wishes.user)
    _devices(f"{root}/dev", wishes.devices)
    os.mkdir(f"{root}/proc")
    linux.mount("proc", f"{root}/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    counters.cover(root)
    linux.change_root(root)
    _own(sources, wishes.user)
    linux.mount("", "/", None, _AGAIN | _BIND | _READ_ONLY | _NO_SUID)


def _own(sources: dict[str, bytes], user: int) -> None:
    """The box's own folder."""
    os.makedirs(INSIDE, exist_ok=True)
    for name, data in sources.items():
        with open(f"{INSIDE}/{name}", "wb") as file:
            file.write(data)
    for path in (INSIDE, *(f"{INSIDE}/{name}" for name in sources)):
        os.chown(path, user, user)


def full() -> bool:
    """Whether one of the private file systems has no room left."""
    rooms = [os.statvfs(path) for path in ("/tmp", "/dev/shm")]
    return any(not room.f_bavail or not room.f_favail for room in rooms)


def _bring(root: str, path: str, read_only: bool) -> None:
    """Show a file or folder of the machine inside."""
    target = root + path
    if os.path.islink(path) and path in _SYSTEM:
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    linux.mount(path, target, None, _BIND | _WITH_SUBMOUNTS)
    linux.seal(target, read_only)


def _settings(root: str, user: int) -> None:
    """/etc: what is read from the machine's, and one user."""
    os.makedirs(f"{root}/etc", exist_ok=True)
    for path in settings():
        with contextlib.suppress(OSError):
            shutil.copyfile(path, root + path)
    own = {"passwd": f"box:x:{user}:{user}::{INSIDE}:/bin/sh\n", "hosts": "127.0.0.1 localhost\n"}
    for name, text in own.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)


def _devices(folder: str, more: tuple[str, ...]) -> None:
    os.makedirs(f"{folder}/shm")
    for path in (*devices(), *more):
        target = f"{folder}/{os.path.relpath(path, '/dev')}"
        os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
        if not os.path.isdir(path):
            open(target, "w").close()
        linux.mount(path, target, None, _BIND)
        if path not in more:  # or the times of a file that anybody may write to could be set
            linux.seal(target, read_only=True, devices=True)
    for name, link in _LINKS.items():
        os.symlink(link, f"{folder}/{name}")
    _temporary(f"{folder}/shm", _SHARED_MB)


def _temporary(folder: str, size_mb: int) -> None:
    os.makedirs(folder, exist_ok=True)
    linux.mount("box", folder, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={size_mb}m,nr_inodes=16k,mode=1777")


def _contents(folder: str) -> dict[str, bytes]:
    found = {}
    for entry in os.scandir(folder):
        with open(entry.path, "rb") as file:
            found[entry.name] = file.read()
    return found


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
