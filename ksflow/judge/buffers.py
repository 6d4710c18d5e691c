"""The memory that the judge shares with a box.

It is sealed against a change of its size, which would otherwise be a way to kill the judge.
"""

import mmap
import os
import weakref
from dataclasses import dataclass

import torch

from ksflow.sandbox import native


@dataclass(frozen=True)
class Room:
    """How much shared memory a box gets: the largest case decides."""

    inputs_bytes: int
    outputs_bytes: int


class Area:
    """Shared memory for one box at a time. `clear` gives the next box a new file at the same addresses of this process:
    a file's attributes, policies and offsets would tell a box what an earlier one has left in them.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self.spoiled = False
        """Whether a box that had it may still be there."""
        self.fds: tuple[int, ...] = ()
        """What the next box gets; nothing before the first `clear`."""
        self._places = [mmap.mmap(-1, size) for size in (room.inputs_bytes, room.outputs_bytes)]
        self.inputs, self.outputs = (torch.frombuffer(place, dtype=torch.uint8) for place in self._places)
        self._close = weakref.finalize(self, _close, ())

    def clear(self) -> None:
        """Forget: new memory, which is sealed against a change of its size and holds zeros."""
        self._close()
        pairs = zip(("inputs", "outputs"), self._places, strict=True)
        self.fds = tuple(native.sealed_memory(name, len(place)) for name, place in pairs)
        self._close = weakref.finalize(self, _close, self.fds)
        for region, fd in zip((self.inputs, self.outputs), self.fds, strict=True):
            native.map_over(region.data_ptr(), region.numel(), fd)

    def fits(self, wanted: Room) -> bool:
        """Whether it holds so much."""
        return self.room.inputs_bytes >= wanted.inputs_bytes and self.room.outputs_bytes >= wanted.outputs_bytes


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
