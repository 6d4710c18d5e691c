"""Landlock: files by an allow-list, TCP by ports or none, no signals to the outside. It needs no namespace."""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterable
from functools import cache

from ksflow.evaluation.sandbox import linux

_READ_FILE, _EXECUTE, _WRITE_FILE, _READ_FOLDER = 1 << 2, 1 << 0, 1 << 1, 1 << 3
_READ = _READ_FILE | _EXECUTE | _READ_FOLDER
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_ADDED_RIGHTS = {2: 1 << 13, 3: _TRUNCATE, 5: _DEVICE_CONTROL}
_TCP, _TCP_CONNECT, _TCP_SINCE = 0b11, 0b10, 4
_SCOPES, _SCOPES_SINCE = 0b11, 6  # abstract sockets, signals
_VERSION, _BENEATH, _PORT = 1, 1, 2
_FOR_FILES = _READ_FILE | _EXECUTE | _WRITE_FILE | _TRUNCATE | _DEVICE_CONTROL


@cache
def version() -> int:
    """Return the version of the kernel's Landlock; 0 if there is none."""
    try:
        return linux.call("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError:
        return 0


def restrict(
    readable: Iterable[str],
    writable: Iterable[str],
    artefacts: Iterable[int],
    ports: Collection[int] | None = (),
    listed: Iterable[str] = (),
) -> None:
    """Restrict this process and its descendants. Raises OSError.

    listed: folders of which, with their contents, it may read the names. ports: TCP ports that it may connect to; None
    means any. Without ports it may not listen either.
    """
    handled = _FIRST_RIGHTS
    for since, right in _ADDED_RIGHTS.items():
        handled |= right if version() >= since else 0
    tcp = 0 if version() < _TCP_SINCE or ports is None else _TCP_CONNECT if ports else _TCP
    scopes = _SCOPES if version() >= _SCOPES_SINCE else 0
    size = 24 if scopes else 16 if tcp else 8
    wanted = ctypes.create_string_buffer(struct.pack("=QQQ", handled, tcp, scopes))
    rules = linux.call("landlock_create_ruleset", wanted, size, 0)
    paths = {_READ: readable, handled: writable, _READ_FOLDER: listed}
    for path, rights in ((path, rights) for rights, each in paths.items() for path in each):
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
                continue
            raise
        try:
            _allow(rules, fd, rights if stat.S_ISDIR(os.fstat(fd).st_mode) else rights & _FOR_FILES)
        finally:
            os.close(fd)
    for fd in artefacts:
        with contextlib.suppress(OSError):  # files that are in memory only may always be read
            _allow(rules, fd, _READ & _FOR_FILES)
    for port in ports or () if tcp else ():
        wanted = ctypes.create_string_buffer(struct.pack("=QQ", _TCP_CONNECT, port))
        linux.call("landlock_add_rule", rules, _PORT, wanted, 0)
    linux.call("landlock_restrict_self", rules, 0)
    os.close(rules)


def _allow(rules: int, fd: int, rights: int) -> None:
    wanted = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd))
    linux.call("landlock_add_rule", rules, _BENEATH, wanted, 0)
