"""Memory shared with a sandbox, sealed against a change of its size, which would kill the judge."""

import mmap
import os
import weakref
from dataclasses import dataclass

import torch

from ksflow.evaluation.sandbox import linux


@dataclass(frozen=True)
class BufferSizes:
    """Sizes of the memory shared with a sandbox, for the largest case."""

    inputs_bytes: int
    outputs_bytes: int


class Buffers:
    """Shared memory for one sandbox at a time. `clear` gives the next sandbox a new file at the same addresses of this
    process: attributes, policies and offsets of a file could pass data from an earlier sandbox.
    """

    def __init__(self, sizes: BufferSizes) -> None:
        self.sizes = sizes
        self.spoiled = False  # whether a sandbox that had it may still run
        self.fds: tuple[int, ...] = ()  # the next sandbox's descriptors; empty before the first `clear`
        self._mappings = [mmap.mmap(-1, size) for size in (sizes.inputs_bytes, sizes.outputs_bytes)]
        self.inputs, self.outputs = (torch.frombuffer(mapping, dtype=torch.uint8) for mapping in self._mappings)
        self._close = weakref.finalize(self, _close, ())

    def clear(self) -> None:
        """Replace the memory by new, sealed memory that holds zeros."""
        self._close()
        pairs = zip(("inputs", "outputs"), self._mappings, strict=True)
        self.fds = tuple(linux.sealed_memory(name, len(mapping)) for name, mapping in pairs)
        self._close = weakref.finalize(self, _close, self.fds)
        for region, fd in zip((self.inputs, self.outputs), self.fds, strict=True):
            linux.map_over(region.data_ptr(), region.numel(), fd)

    def fits(self, wanted: BufferSizes) -> bool:
        """Return whether the memory is large enough."""
        return self.sizes.inputs_bytes >= wanted.inputs_bytes and self.sizes.outputs_bytes >= wanted.outputs_bytes


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
