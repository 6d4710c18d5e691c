"""The system call filter: what no kernel needs is refused, what would move it from its core is accepted and ignored.

Covered: tracing and reading other processes, mounts and namespaces, sockets other than local ones, keys, modules,
clocks, io_uring, bpf, perf, userfaultfd, foreign ABIs, calls newer than those looked at. NOT covered: anything that
the remaining calls reach by their arguments; that is for the other layers.

Starting a process (a thread is none) is asked for: whoever holds the listener that `restrict` returns says yes or no,
so a box can be told at any time to start no more, and nothing inside can undo that.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from functools import cache

from ksflow.stages.evaluator.box import native, syscalls

_REFUSED = (
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "fanotify_mark",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "migrate_pages",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "vhangup",
    "_sysctl",
)
_SHARED_IPC = ("mq_open", "msgget", "semget", "shmget")
"""What outlives its maker, where there is no namespace for it."""
_SOCKETS = ("bind", "connect", "socket")
"""The machine's own services listen on local sockets that no list of files covers. Pairs of sockets remain."""
_IGNORED = (
    "ioprio_set",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "setpriority",
)
"""The judge says where a box runs; a thread pool that pins its threads is told that it worked."""
_NEW_NAMESPACES = 0x7E020000
_THREAD = 0x00010000
_LOCAL = 1
_SAME_PERSONALITY = 0xFFFFFFFF

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_ASK = 0x7FC00000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

_SET_FILTER, _IS_AVAILABLE = 1, 2
_FULL_SPEED, _LISTENER = 4, 8
"""Without the brake against speculation that older kernels put on filtered processes; with someone to ask."""
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_QUESTION = struct.Struct("=QII64x")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1

Program = list[bytes]


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


@cache
def supported() -> bool:
    """Whether this machine is known and its kernel filters."""
    try:
        native.call("seccomp", _IS_AVAILABLE, 0, ctypes.byref(ctypes.c_uint32(_ERRNO)))
    except OSError:
        return False
    return True


def prepare() -> None:
    """Write the filters, for the processes that will be forked from this one."""
    if supported():
        for private in (True, False):
            _main(private, watched=_can_ask())


def restrict(private: bool, watched: bool = False) -> int | None:
    """Filter this process and all that it will start. `private`: it has namespaces of its own. Raises OSError.

    `watched`: its starting of processes is asked for; the descriptor on which, where this kernel can.
    """
    watched = watched and _can_ask()
    found = _install(_main(private, watched), _FULL_SPEED | (_LISTENER if watched else 0))
    return found if watched else None


def answer(listener: int, allowed: bool) -> None:
    """Answer one question about starting a process."""
    question = bytearray(_QUESTION.size)
    with contextlib.suppress(OSError):  # whoever asked may be gone
        fcntl.ioctl(listener, _RECEIVE, question)
        number, _, _ = _QUESTION.unpack(question)
        verdict = (0, _CONTINUE) if allowed else (-errno.EAGAIN, 0)
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, *verdict))


@cache
def _can_ask() -> bool:
    """Whether the kernel can ask (5.0) and take "go on" for an answer (5.5)."""
    try:
        native.call("seccomp", _IS_AVAILABLE, 0, ctypes.byref(ctypes.c_uint32(_ASK)))
    except OSError:
        return False
    numbers = os.uname().release.split(".")[:2]
    return all(map(str.isdigit, numbers)) and [int(number) for number in numbers] >= [5, 5]


@cache
def _main(private: bool, watched: bool) -> bytes:
    refused = [*_REFUSED, *(() if private else _SHARED_IPC + _SOCKETS)]
    program = _head()
    program += _when(syscalls.numbers(*refused), _errno(errno.EPERM))
    program += _when(syscalls.numbers(*_IGNORED), _errno(0))
    program += _when(syscalls.numbers("clone3"), _errno(errno.ENOSYS))
    start = _ASK if watched else _ALLOW
    program += _when(syscalls.numbers("fork", "vfork"), start)
    program += _clone(start)
    program += _argument("socket", _EQUAL, _LOCAL, _ALLOW, _errno(errno.EPERM))
    program += _argument("personality", _EQUAL, _SAME_PERSONALITY, _ALLOW, _errno(errno.EPERM))
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _clone(start: int) -> Program:
    """No new namespaces; threads; `start` for processes."""
    (number,) = syscalls.numbers("clone")
    return [
        _step(_EQUAL, number, 0, 6),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, _errno(errno.EPERM)),
        _step(_ANY_BIT, _THREAD, 0, 1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, start),
    ]


def _head() -> Program:
    """Another machine's calls kill; calls that nobody has looked at do not exist. Leaves the call's number loaded."""
    here = syscalls.machine()
    assert here is not None
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, here.audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if here.foreign is not None:
        program += [_step(_AT_LEAST, here.foreign, 0, 1), _step(_RETURN, _KILL)]
    return [*program, _step(_AT_LEAST, syscalls.NEWEST + 1, 0, 1), _step(_RETURN, _errno(errno.ENOSYS))]


def _when(numbers: list[int], action: int) -> Program:
    steps = []
    for number in numbers:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, action)]
    return steps


def _argument(name: str, test: int, value: int, then: int, otherwise: int) -> Program:
    """Decide one call by its first argument."""
    (number,) = syscalls.numbers(name)
    return [
        _step(_EQUAL, number, 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(test, value, 0, 1),
        _step(_RETURN, then),
        _step(_RETURN, otherwise),
    ]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _errno(number: int) -> int:
    return _ERRNO | number


def _install(program: bytes, flags: int) -> int:
    whole = _Filter(len(program) // 8, program)
    return native.call("seccomp", _SET_FILTER, flags, ctypes.byref(whole))
