"""Frames between this process and a child: four bytes of length, then JSON. No pickle, no code."""

import json
import math
import os
import select
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Message = dict[str, Any]

_HEAD = struct.Struct(">I")
_LARGEST = 1 << 28
LATE = "no answer in time"
SEND_S = 60.0  # limit of a write to a process that does not read


class Closed(Exception):
    """The other side is gone, did not answer in time, or sent an invalid message."""


def send(fd: int, message: Message, timeout_s: float = SEND_S) -> None:
    """Write one message. Raises Closed, also if the pipe stays full; ValueError, with nothing written, for NaN or
    infinity.
    """
    deadline = time.monotonic() + timeout_s
    try:
        body = json.dumps(message, allow_nan=False).encode()
    except ValueError as error:
        raise ValueError(f"{_odd_number(message) or error} cannot be sent") from error
    data = memoryview(_HEAD.pack(len(body)) + body)
    with _closed():
        while data:
            _await(fd, select.POLLOUT, deadline, "accepted no message in time")
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]  # a write of this size does not block now


def receive(fd: int, timeout_s: float | None = None) -> Message:
    """Read one message. Raises Closed."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _HEAD.unpack(_exactly(fd, _HEAD.size, deadline))
    if length > _LARGEST:
        raise Closed("not a frame")
    try:
        message = json.loads(_exactly(fd, length, deadline))
    except ValueError as error:
        raise Closed(str(error)) from error
    if not isinstance(message, dict):
        raise Closed("not a message")
    return message


def _odd_number(value: object, at: str = "") -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{at.removeprefix('.')}: {value}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next(filter(None, (_odd_number(item, f"{at}.{name}") for name, item in items)), "")


def _exactly(fd: int, count: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        _await(fd, select.POLLIN, deadline, LATE)
        with _closed():
            chunk = os.read(fd, min(count - len(parts), 1 << 16))
        if not chunk:
            raise Closed("end of stream")
        parts += chunk
    return bytes(parts)


@contextmanager
def _closed() -> Iterator[None]:
    """Raise Closed for an error of the pipe."""
    try:
        yield
    except OSError as error:
        raise Closed(str(error)) from error


def _await(fd: int, event: int, deadline: float | None, otherwise: str) -> None:
    """Return once a descriptor is ready. Raises Closed at the deadline."""
    poller = select.poll()
    poller.register(fd, event)
    left = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
    if not poller.poll(left):
        raise Closed(otherwise)
