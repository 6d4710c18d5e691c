"""Linux calls that Python does not offer. Those that return nothing raise OSError on failure."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import socket
import struct
import time
from pathlib import Path

from ksflow.evaluation.sandbox import syscalls
from ksflow.home import bytes_of

NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""Mounts, host name, IPC, processes, network."""
NEW_USERS = 0x10000000
FIRST_TO_DIE = Path("/proc/self/oom_score_adj")  # takes 1000 for a process to be killed first when memory is short
READ_ANY_FILE = 1 << 2  # CAP_DAC_READ_SEARCH: read files and search folders

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_HERE, _RECURSIVE = -100, 0x8000
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_DETACH = 2
_FIXED = 0x10
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_INTERFACE = struct.Struct("=16sh22x")  # `struct ifreq`: an interface's name and flags
_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call(name: str, *arguments: object) -> int:
    """Make a system call by name, which both supported machines must have, and return its result. Raises OSError."""
    wide = (ctypes.c_long(value) if isinstance(value, int) else value for value in arguments)
    return _checked(_libc.syscall(syscalls.numbers(name)[0], *wide), name)


def clone(flags: int) -> int:
    """Fork into new namespaces; returns 0 in the child. The parent must have one thread."""
    return call("clone", flags | int(signal.SIGCHLD), 0, 0, 0, 0)


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have this process sent a signal when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_dumpable(allowed: bool) -> None:
    """Set whether processes of the same user may read this one's memory and environment."""
    _libc.prctl(_PR_SET_DUMPABLE, int(allowed), 0, 0, 0)


def keep_freed_memory() -> None:
    """Have malloc keep large freed blocks, so that new tensors do not fault their pages in again: as in a process that
    has run for a while, whose malloc has adapted to its blocks."""
    for option, value in ((_M_MMAP_THRESHOLD, 32 << 20), (_M_TRIM_THRESHOLD, 1 << 30), (_M_TOP_PAD, 64 << 20)):
        _libc.mallopt(option, value)


def sealed_memory(name: str, size: int) -> int:
    """Return a file descriptor of memory to share. Nobody can change its size, which would kill the processes that map
    it.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED_SIZE)
    return fd


def sealed_copy(path: str) -> int:
    """Return a descriptor of a private, immutable copy of a file. Raises OSError."""
    fd = os.memfd_create("copy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(path, "rb") as source, open(fd, "wb", closefd=False) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED_SIZE | fcntl.F_SEAL_WRITE)
    except OSError:
        os.close(fd)
        raise
    return fd


def map_over(address: int, size: int, fd: int) -> None:
    """Map a file's memory, all of it present, over a mapping of the same size."""
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE | _FIXED
    call("mmap", address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)


def keep_capabilities() -> None:
    """Keep root's capabilities, as permitted ones, at the next change of user."""
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)


def set_capabilities(mask: int) -> None:
    """Drop every capability that is not in the mask."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)), "capset")


def no_new_privileges() -> None:
    """Keep this process and its children from gaining rights by set-uid programs."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system, or bind a file or folder."""
    source_, target_, kind_, data_ = (word.encode() if word else None for word in (source, target, kind, data))
    _checked(_libc.mount(source_, target_, kind_, ctypes.c_ulong(flags), data_), f"mount {target}")


def seal_mount(target: str, read_only: bool, devices: bool = False) -> None:
    """Forbid set-uid programs below a mount, devices unless allowed, and writing if `read_only`; submounts included."""
    attributes = _NO_SUID | (_READ_ONLY if read_only else 0) | (0 if devices else _NO_DEVICES)
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    call("mount_setattr", _HERE, ctypes.c_char_p(target.encode()), _RECURSIVE, wanted, ctypes.sizeof(wanted))


def change_root(folder: str) -> None:
    """Make a mounted folder this process' root, and detach the old one."""
    os.chdir(folder)
    call("pivot_root", ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    _checked(_libc.umount2(b".", _DETACH), "umount")
    os.chdir("/")


def write_setting(file: Path, value: object) -> bool:
    """Write a setting below /proc or /sys; return whether the system has taken it."""
    with contextlib.suppress(OSError):
        file.write_text(str(value), encoding="ascii")
        return True
    return False


def bring_up_loopback() -> None:
    """Bring up 127.0.0.1 in a new network namespace, if permitted."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _GET_FLAGS, _INTERFACE.pack(b"lo", 0))
        fcntl.ioctl(any_socket, _SET_FLAGS, _INTERFACE.pack(b"lo", _INTERFACE.unpack(answer)[1] | _UP))


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads. Raises OSError if there is none."""
    return time.clock_gettime((~pid << 3) | 2)


def tasks(pid: int) -> list[Path]:
    """Return the folders below /proc of a process' threads, in order; empty if the process is gone."""
    with contextlib.suppress(OSError):
        return sorted(Path(f"/proc/{pid}/task").iterdir())
    return []


def descendants(root: int, dead: bool = True) -> list[int]:
    """Return every process below `root`, nearest first; `dead`: with unreaped ones."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = bytes_of(Path("/proc", name, "stat")).rpartition(b")")[2].split()
        if fields and (dead or fields[0] != b"Z"):
            parents.setdefault(int(fields[1]), []).append(int(name))
    processes, queue = [], [root]
    while queue:
        children = parents.get(queue.pop(0), [])
        processes += children
        queue += children
    return processes


def kill_descendants() -> None:
    """Kill all descendants, nearest first: the first process of a namespace takes the others with it."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_descendants(patience_s: float) -> None:
    """Kill all descendants, orphans that this process adopts included, and wait for their end."""
    deadline = time.monotonic() + patience_s
    with contextlib.suppress(ChildProcessError):  # no children left
        while time.monotonic() < deadline:
            kill_descendants()
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.0005)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
