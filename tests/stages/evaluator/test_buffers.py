"""Memory that the judge shares with boxes: each finds it as if nobody had had it before."""

import contextlib
import fcntl
import os

import pytest

from ksflow.judge.buffers import Buffers, BufferSizes


def test_next_box_finds_nothing_of_the_last_one() -> None:
    buffers = Buffers(BufferSizes(8192, 4096))
    buffers.clear()
    addresses = buffers.inputs.data_ptr(), buffers.outputs.data_ptr()
    before = [os.stat(fd) for fd in buffers.fds]
    kept = os.dup(buffers.fds[0])  # as a sandbox's
    os.pwrite(kept, b"word", 100)
    os.lseek(kept, 77, os.SEEK_SET)
    with contextlib.suppress(OSError):  # before Linux 6.6
        os.setxattr(kept, "user.word", b"word")
    assert bytes(buffers.inputs[100:104].tolist()) == b"word"
    buffers.clear()
    assert (buffers.inputs.data_ptr(), buffers.outputs.data_ptr()) == addresses
    assert not buffers.inputs.any()
    for fd, old in zip(buffers.fds, before, strict=True):
        assert os.fstat(fd).st_ino != old.st_ino
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
        with contextlib.suppress(OSError):
            assert os.listxattr(fd) == []
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    os.pwrite(kept, b"late", 100)
    os.close(kept)
    assert not buffers.inputs.any()
    os.pwrite(buffers.fds[1], b"new", 0)
    assert bytes(buffers.outputs[:3].tolist()) == b"new"


def test_memory_is_given_back() -> None:
    buffers = Buffers(BufferSizes(4096, 4096))
    for _ in range(3):
        buffers.clear()
    fds = buffers.fds
    del buffers
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
