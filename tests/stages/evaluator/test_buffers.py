"""Memory that the judge shares with boxes: each finds it as if nobody had had it before, and must write all of it."""

import contextlib
import fcntl
import math
import os
import socket

import pytest
import torch

from ksflow.evaluation.judge.buffers import Buffers, BufferSizes, Piece
from ksflow.evaluation.judge.check import poisons
from ksflow.evaluation.judge.sandboxed import Sandbox, SandboxSpec
from ksflow.evaluation.judge.tolerance import Expected, expected, first_error


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


def _expects(values: torch.Tensor, slack: float = 0.0) -> tuple[Expected, Piece]:
    row = {"expected": values.double() if values.is_floating_point() else values, "magnitude": slack, "terms": 1}
    want = expected(row, values, {"c1": 8.0, "accumulate": "float32"})
    return want, Piece(values.dtype, tuple(values.shape), values.stride(), 0, values.nbytes, True)


@pytest.mark.parametrize(
    ("values", "slack"),
    [
        (torch.full((999,), -1, dtype=torch.int32), 0.0),
        (torch.tensor([255, 7] * 99, dtype=torch.uint8), 0.0),
        (torch.arange(-100, 155).clamp(-128, 127).to(torch.int8), 0.0),
        (torch.tensor([True, False] * 9), 0.0),
        (torch.tensor([0.0, 0.0, 3.0] * 99), 1.0),  # tiny numbers are right where a bound is absolute
        (torch.tensor([math.nan, 1.0] * 99), 0.0),
        (torch.tensor([math.nan, math.inf, 0.0], dtype=torch.float16), 0.0),
        (torch.tensor([0.5, -448.0, 448.0]).to(torch.float8_e4m3fn), 1e6),
        (torch.tensor([1 + 2j, 0j], dtype=torch.complex64), 0.0),
    ],
    ids=str,
)
def test_no_element_is_right_that_is_not_written(values: torch.Tensor, slack: float) -> None:
    want, piece = _expects(values, slack)
    found = poisons((want,), (piece,))
    assert found
    for byte in found:
        unwritten = torch.full((values.nbytes,), byte, dtype=torch.uint8).view(values.dtype).reshape(values.shape)
        assert first_error(want, unwritten).get("bad", 0) == first_error(want, unwritten).get("of", -1), byte


def test_where_every_byte_is_right_somewhere_the_rarest_is_taken() -> None:
    usual = torch.arange(256).repeat(40)
    values = usual[usual != 77].repeat(20).to(torch.uint8)
    values[::1000] = 77
    want, piece = _expects(values)
    assert poisons((want,), (piece,)) == (77,)


def test_outputs_of_several_types_share_a_poison_that_is_right_in_none() -> None:
    pairs = [_expects(torch.full((9,), -1, dtype=torch.int64)), _expects(torch.tensor([0.0, 1e30]))]
    found = poisons(*zip(*pairs, strict=True))
    assert len(found) > 20
    assert 0xFF not in found
    assert poisons((), ()) == tuple(range(2, 256))


def test_a_box_whose_supervisor_reports_a_fault_at_the_end_is_closed_as_a_whole() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    box = Sandbox(SandboxSpec(ours, "cpp"), Buffers(BufferSizes(4096, 4096)))
    _, fds, _, _ = socket.recv_fds(theirs, 1 << 16, 8)
    supervisor = socket.socket(fileno=fds[0])
    for word in (b"fault it could not be removed", b"gone"):
        supervisor.send(word)
    box.close()
    assert box.supervisor.fileno() == box.socket.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(box.log.reader)
    for each in (ours, theirs, supervisor):
        each.close()
    for fd in fds[1:]:
        os.close(fd)
    os.rmdir(box.folder)
