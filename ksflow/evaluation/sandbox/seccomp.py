"""The system call filter: calls that `policy` lists are allowed, others are refused or answered without being made.

NOT covered: memory that arguments point to (the filter sees numbers only), and what an allowed call reaches by it;
other layers restrict that. Starting a process (not a thread) is a request to the holder of the listener that `restrict`
returns, who allows or refuses it. So a sandbox can be kept from starting processes at any time, and nothing inside can
undo that. The same listener answers `sysinfo` with earlier values.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from functools import cache

from ksflow.evaluation.sandbox import counters, linux, syscalls
from ksflow.evaluation.sandbox.policy import KINDS, PROGRAMS, ArgumentCheck, policy

_NEW_NAMESPACES, _THREAD = 0x7E020000, 0x00010000

_ALLOW, _KILL, _ASK = 0x7FFF0000, 0x80000000, 0x7FC00000
_ERRNO = 0x00050000  # plus the error's number
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _EACH_ARGUMENT = 0, 4, 16, 8

_SET_FILTER, _IS_AVAILABLE = 1, 2
_FULL_SPEED, _LISTENER = 4, 8
"""Without the mitigation of speculation that older kernels impose on filtered processes; with a listener."""
_RECEIVE, _SEND, _STILL_ASKED = 0xC0502100, 0xC0182101, 0x40082102
_QUESTION = struct.Struct("=QIIi12xQ40x")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1
_AGENT_REFUSED = """add_key request_key keyctl io_uring_setup io_uring_enter io_uring_register unshare setns clone3"""
"""Kernel keys, calls that this filter would not see, namespaces. Programs fall back from clone3 to clone."""
_LOCAL, _NETWORK = (1,), (2, 10, 16)  # families of sockets: local; IPv4, IPv6, and netlink for listing interfaces

Program = list[bytes]


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _available(action: int) -> bool:
    with contextlib.suppress(OSError):
        linux.call("seccomp", _IS_AVAILABLE, 0, ctypes.byref(ctypes.c_uint32(action)))
        return True
    return False


@cache
def is_supported() -> bool:
    """Return whether this machine is supported and its kernel has filters."""
    return _available(_ERRNO)


@cache
def can_ask() -> bool:
    """Return whether the kernel can ask a listener (5.0) that answers "continue" (5.5)."""
    numbers = os.uname().release.split(".")[:2]
    return _available(_ASK) and all(map(str.isdigit, numbers)) and [int(number) for number in numbers] >= [5, 5]


def prepare() -> None:
    """Build the filters, for the processes that will be forked from this one."""
    if is_supported():
        for private in (True, False):
            for kind in KINDS:
                _program(private, can_ask() and kind not in PROGRAMS, kind)


def restrict(private: bool, watched: bool = False, kind: str = "kernel") -> int | None:
    """Filter this process and its descendants. Raises OSError.

    private: it has namespaces of its own. kind: one of `policy.KINDS`. watched: starting processes needs a listener's
    consent; returns the listener's descriptor, None if not watched or this kernel has no listeners.
    """
    watched = watched and can_ask()
    listener = _load_filter(_program(private, watched, kind), _LISTENER if watched else 0)
    return listener if watched else None


def restrict_agent(local: bool) -> None:
    """Filter a program that needs the network: only network sockets, and `local` ones if set, no kernel keys, no
    namespaces; any other call is allowed, pairs of sockets too. Raises OSError.
    """
    families = ArgumentCheck("socket", 0, (*_LOCAL, *_NETWORK) if local else _NETWORK, errno.EAFNOSUPPORT)
    program = _head(syscalls.machine()) + _when(syscalls.numbers(*_AGENT_REFUSED.split()), _ERRNO | errno.ENOSYS)
    _load_filter(b"".join([*program, *_clone(_ALLOW), *_checked(families), _step(_RETURN, _ALLOW)]))


def answer(listener: int, allowed: bool) -> None:
    """Answer one request: to start a process, or for the machine's memory and load."""
    question = bytearray(_QUESTION.size)
    with contextlib.suppress(OSError):  # the process that asked may be gone
        fcntl.ioctl(listener, _RECEIVE, question)
        number, thread, _, call, address = _QUESTION.unpack(question)
        if [call] == syscalls.numbers("sysinfo"):
            verdict = _write_system(listener, number, thread, address)
        else:
            verdict = (0, _CONTINUE) if allowed else (-errno.EAGAIN, 0)
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, *verdict))


def _write_system(listener: int, number: int, thread: int, address: int) -> tuple[int, int]:
    """Write the earlier result of `sysinfo` to the thread's memory. Returns the answer to the call."""
    with open(f"/proc/{thread}/mem", "r+b", buffering=0) as memory:
        fcntl.ioctl(listener, _STILL_ASKED, struct.pack("=Q", number))  # confirms that the open memory is the thread's
        try:
            os.pwrite(memory.fileno(), counters.system(), address)
        except (OSError, OverflowError):
            return -errno.EFAULT, 0
    return 0, 0


def _load_filter(program: bytes, flags: int = 0) -> int:
    whole = _Filter(len(program) // 8, program)
    return linux.call("seccomp", _SET_FILTER, _FULL_SPEED | flags, ctypes.byref(whole))


@cache
def _program(private: bool, watched: bool, kind: str) -> bytes:
    rules = policy(kind, private)
    here = syscalls.machine()
    start = _ASK if watched else _ALLOW
    program = _head(here) + _never_opened("open", 1, here.direct) + _never_opened("openat", 2, here.direct)
    program += _allow_ranges(sorted(syscalls.numbers(*rules.allowed)))
    program += _when(syscalls.numbers("fork", "vfork", "sysinfo"), start)
    program += _clone(start)
    for check in rules.checks:
        program += _checked(check)
    for error in sorted(set(rules.answers.values())):
        program += _when(
            syscalls.numbers(*(call for call, other in rules.answers.items() if other == error)), _ERRNO | error
        )
    return b"".join([*program, _step(_RETURN, _ERRNO | errno.EPERM)])


def _head(here: syscalls.Machine) -> Program:
    """Kill calls of another architecture, refuse calls newer than the table. Leaves the call's number loaded."""
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, here.audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if here.foreign is not None:
        program += [_step(_AT_LEAST, here.foreign, 0, 1), _step(_RETURN, _KILL)]
    return [*program, _step(_AT_LEAST, syscalls.NEWEST + 1, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]


def _never_opened(call: str, argument: int, flag: int) -> Program:
    program: Program = []
    for number in syscalls.numbers(call):
        program += [_step(_EQUAL, number, 0, 4), _load(argument), _step(_ANY_BIT, flag, 0, 1)]
        program += [_step(_RETURN, _ERRNO | errno.EINVAL), _step(_RETURN, _ALLOW)]
    return program


def _allow_ranges(numbers: list[int]) -> Program:
    program: Program = []
    first = 0
    for index, number in enumerate(numbers):
        if number + 1 not in numbers[index + 1 : index + 2]:
            program += [_step(_AT_LEAST, numbers[first], 0, 2), _step(_GREATER, number, 1, 0), _step(_RETURN, _ALLOW)]
            first = index + 1
    return program


def _clone(start: int) -> Program:
    (number,) = syscalls.numbers("clone")
    return [
        _step(_EQUAL, number, 0, 6),
        _load(0),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, _ERRNO | errno.EPERM),
        _step(_ANY_BIT, _THREAD, 0, 1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, start),
    ]


def _when(numbers: list[int], action: int) -> Program:
    return [step for number in numbers for step in (_step(_EQUAL, number, 0, 1), _step(_RETURN, action))]


def _checked(check: ArgumentCheck) -> Program:
    (number,) = syscalls.numbers(check.call)
    inside = [_load(check.argument), *_when([*check.allowed], _ALLOW), *_when([*check.ignored], _ERRNO)]
    inside.append(_step(_RETURN, _ERRNO | check.otherwise))
    return [_step(_EQUAL, number, 0, len(inside)), *inside]


def _load(argument: int) -> bytes:
    """Load the lower half of an argument, which the kernel uses for 32-bit values."""
    return _step(_LOAD, _FIRST_ARGUMENT + _EACH_ARGUMENT * argument)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
