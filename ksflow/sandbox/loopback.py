"""The loopback interface of a box's own network namespace, for programs that talk to their own parts over 127.0.0.1."""

import contextlib
import fcntl
import socket
import struct

_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_UP = 1
_REQUEST = struct.Struct("=16sh22x")
"""An interface's name and its flags, as the kernel's `struct ifreq` has them."""


def bring_up() -> None:
    """Switch the interface on. Nothing happens where this process may not: who needs it then finds it switched off."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, _GET_FLAGS, _REQUEST.pack(b"lo", 0))
        flags = _REQUEST.unpack(found)[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, _REQUEST.pack(b"lo", flags | _UP))
