"""Memory that the judge shares with boxes: each finds it as if nobody had had it before."""

import contextlib
import fcntl
import os

import pytest

from ksflow.judge.buffers import Area, Room


def test_next_box_finds_nothing_of_the_last_one() -> None:
    area = Area(Room(8192, 4096))
    area.clear()
    addresses = area.inputs.data_ptr(), area.outputs.data_ptr()
    before = [os.stat(fd) for fd in area.fds]
    kept = os.dup(area.fds[0])  # as a box's
    os.pwrite(kept, b"word", 100)
    os.lseek(kept, 77, os.SEEK_SET)
    with contextlib.suppress(OSError):  # before Linux 6.6
        os.setxattr(kept, "user.word", b"word")
    assert bytes(area.inputs[100:104].tolist()) == b"word"
    area.clear()
    assert (area.inputs.data_ptr(), area.outputs.data_ptr()) == addresses
    assert not area.inputs.any()
    for fd, old in zip(area.fds, before, strict=True):
        assert os.fstat(fd).st_ino != old.st_ino
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
        with contextlib.suppress(OSError):
            assert os.listxattr(fd) == []
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    os.pwrite(kept, b"late", 100)
    os.close(kept)
    assert not area.inputs.any()
    os.pwrite(area.fds[1], b"new", 0)
    assert bytes(area.outputs[:3].tolist()) == b"new"


def test_memory_is_given_back() -> None:
    area = Area(Room(4096, 4096))
    for _ in range(3):
        area.clear()
    fds = area.fds
    del area
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
