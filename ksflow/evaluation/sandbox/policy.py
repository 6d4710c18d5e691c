"""The system calls that a sandbox's processes may make: an allow-list (`policy.toml`), with the arguments that matter.

Calls that are not listed do not exist in a sandbox. There are four kinds: `kernel` (a candidate on a CPU), `device`
(one on a GPU, whose driver needs more calls), `tool` (a compiler or another program that works on files) and `profiler`
(a tool that may also trace processes and talk to them over the loopback interface, if its sandbox has namespaces and so
no other process to trace or to talk to). Left out on purpose, because sandboxes could communicate by files that all of
them may read: record locks, leases and file notifications, extended attributes, contents of the page cache, direct
reads. Left out because they work while another sandbox is being timed: timers that send signals, asynchronous input and
output. Locks and hints that honest libraries need are accepted and ignored, because nobody else can have those files.
"""

import errno
import tomllib
from pathlib import Path
from typing import NamedTuple

KINDS = ("kernel", "device", "tool", "profiler")
PROGRAMS = ("tool", "profiler")  # run a program of this machine, and are never limited to one process

_RULES = tomllib.loads(Path(__file__).with_name("policy.toml").read_text(encoding="utf-8"))
_ALLOWED = {group: calls.split() for group, calls in _RULES["allowed"].items()}
_ANSWERS = {
    call: getattr(errno, error, 0) for error, calls in _RULES["answered"].items() for call in calls.split()
}  # of "success": 0
_VALUES = {name: tuple(values) for name, values in _RULES["values"].items()}
_REMOVE, _SET_TRACER = 9, 0x59616D61  # of madvise for programs, of prctl for profilers
_LOCAL, _LOCAL_OR_LOOPBACK = (1,), (1, 2)  # families of sockets: local, IPv4


class ArgumentCheck(NamedTuple):
    """A call whose lower 32 bits of one argument decide."""

    call: str
    argument: int
    allowed: tuple[int, ...]
    otherwise: int  # the error for other values
    ignored: tuple[int, ...] = ()  # values that succeed without any effect


class Policy(NamedTuple):
    """Policy of one kind of sandbox. Every other call is refused with EPERM."""

    allowed: tuple[str, ...]
    answers: dict[str, int]  # call -> the error that it gets without being made; 0 for success
    checks: tuple[ArgumentCheck, ...]


def policy(kind: str, private: bool) -> Policy:
    """Return the policy of one of KINDS; `private`: its sandboxes have namespaces of their own."""
    program, traces = kind in PROGRAMS, private and kind == "profiler"
    given = {"namespaces": private, "programs": program, "profilers": traces, "devices": kind != "kernel"}
    allowed = {call for group, calls in _ALLOWED.items() if given.get(group, True) for call in calls}
    madvise = (*_VALUES["madvise"], *([_REMOVE] if program else []))
    prctl = (*_VALUES["prctl"], *([_SET_TRACER] if traces else []))
    checks = [
        ArgumentCheck("socketpair", 0, _LOCAL, errno.EAFNOSUPPORT),
        ArgumentCheck("personality", 0, _VALUES["personality"], errno.EPERM),
        ArgumentCheck("madvise", 2, madvise, errno.EINVAL),
        ArgumentCheck("prctl", 0, prctl, errno.EINVAL),
    ]
    if private:
        families = _LOCAL_OR_LOOPBACK if traces else _LOCAL
        checks.append(ArgumentCheck("socket", 0, families, errno.EAFNOSUPPORT if traces else errno.EPERM))
    if program:
        allowed |= {"fcntl", "fallocate"}
    else:
        checks.append(ArgumentCheck("fallocate", 1, _VALUES["fallocate"], errno.EOPNOTSUPP))
        checks.append(ArgumentCheck("fcntl", 1, _VALUES["fcntl"], errno.EINVAL, ignored=_VALUES["locks"]))
    if kind == "kernel":
        checks.append(ArgumentCheck("ioctl", 1, _VALUES["ioctl"], errno.ENOTTY))
    else:
        allowed |= {"ioctl"}
    answers = {call: error for call, error in _ANSWERS.items() if call not in allowed}
    return Policy(tuple(sorted(allowed)), answers, tuple(checks))
