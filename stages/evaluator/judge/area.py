"""The memory that the judge shares with a box.

It is sealed against a change of its size, which would otherwise be a way to kill the judge.
"""

import mmap
import os
import weakref
from dataclasses import dataclass

import torch

from ksflow.stages.evaluator.box import native


@dataclass(frozen=True)
class Room:
    """How much shared memory a box gets: the largest case decides."""

    inputs_bytes: int
    outputs_bytes: int


class Area:
    """Shared memory for one box at a time. Whoever gets it next finds nothing of the last one's in it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.spoiled = False
        """Whether a box that had it may still be there."""
        self.inputs, inputs = _memory("inputs", room.inputs_bytes)
        self.outputs, outputs = _memory("outputs", room.outputs_bytes)
        self.fds: tuple[int, ...] = (inputs, outputs)
        for fd in self.fds:
            weakref.finalize(self, os.close, fd)

    def clear(self) -> None:
        """Forget."""
        for region in (self.inputs, self.outputs):
            region.zero_()

    def fits(self, wanted: Room) -> bool:
        """Whether it holds so much."""
        return self.room.inputs_bytes >= wanted.inputs_bytes and self.room.outputs_bytes >= wanted.outputs_bytes


def _memory(name: str, size: int) -> tuple[torch.Tensor, int]:
    """Shared memory as bytes, and its descriptor."""
    fd = native.sealed_memory(name, size)
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8), fd
