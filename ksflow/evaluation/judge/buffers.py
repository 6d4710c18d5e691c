"""Memory shared with a sandbox, and where a case's tensors are in it.

The memory is sealed against a change of its size, which would kill the judge. A slot holds the tensors of one call.
"""

import math
import mmap
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from ksflow.evaluation.judge.tolerance import Expected
from ksflow.evaluation.sandbox import linux
from ksflow.evaluation.sandbox.runners.pytree import Flat

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class BufferSizes:
    """Sizes of the memory shared with a sandbox, for the largest case."""

    inputs_bytes: int
    outputs_bytes: int


class Buffers:
    """Shared memory for one sandbox at a time. `clear` gives the next one a new file at the same addresses of this
    process: attributes, policies and offsets of a file could pass data from an earlier sandbox."""

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
        return self.sizes.inputs_bytes >= wanted.inputs_bytes and self.sizes.outputs_bytes >= wanted.outputs_bytes


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


@dataclass(frozen=True)
class Piece:
    """Position, type and strides of one tensor in a slot."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    bytes: int
    out: bool

    def view(self, region: torch.Tensor) -> torch.Tensor:
        """Return the tensor as a view of a slot's bytes."""
        flat = region[self.offset : self.offset + self.bytes].view(self.dtype)
        return flat.as_strided(self.sizes, self.strides)

    def holes(self) -> torch.Tensor:
        """Return the offsets in a slot of the bytes between this tensor's elements."""
        if self.bytes <= math.prod(self.sizes) * self.dtype.itemsize:
            return torch.empty(0, dtype=torch.int64)
        free = torch.ones(self.bytes, dtype=torch.uint8)
        replace(self, offset=0).view(free).zero_()
        return free.nonzero().view(-1) + self.offset

    def elements(self, region: torch.Tensor) -> torch.Tensor:
        """Return a view of its elements' bytes in a slot's bytes, without those between elements."""
        size, flat = self.dtype.itemsize, region[self.offset : self.offset + self.bytes]
        return flat.as_strided((*self.sizes, size), (*(step * size for step in self.strides), 1))

    def message(self) -> dict[str, Any]:
        """Return the description that the sandbox gets."""
        return {
            "dtype": str(self.dtype).removeprefix("torch."),
            "sizes": self.sizes,
            "strides": self.strides,
            "offset": self.offset,
            "bytes": self.bytes,
            "out": int(self.out),
        }


@dataclass(frozen=True)
class Layout:
    """Positions of a case's tensors in a slot of inputs and a slot of outputs."""

    pieces: tuple[Piece, ...]
    input_bytes: int
    output_bytes: int
    binding: Mapping[str, Any] = field(default_factory=dict)
    """Calling convention of a candidate in another project's format (`pytree.Flat`); empty for plain tensors."""
    inout: tuple[tuple[int, int], ...] = ()
    """Of each argument that is changed in place: index of the piece with its initial contents, and of its own piece."""
    order: tuple[int, ...] = ()
    """Indices of the pieces that a kernel gets; empty for all."""

    @property
    def arguments(self) -> tuple[Piece, ...]:
        """Return the pieces that a sandbox is told of, in order."""
        return tuple(self.pieces[place] for place in self.order) if self.order else self.pieces

    def before(self) -> tuple[Piece, ...]:
        """Return the same with the pieces of the initial contents for what is changed in place."""
        source = {target: place for place, target in self.inout}
        return tuple(self.pieces[source.get(place, place)] for place in self.order or range(len(self.pieces)))

    @cached_property
    def sources(self) -> dict[int, Piece]:
        """By number of an output that is changed in place: the input piece with its initial contents."""
        return {target - len(self.inputs): self.pieces[place] for place, target in self.inout}

    def filled(self, expected: tuple[Expected, ...]) -> tuple[list[Expected], list[Piece]]:
        """Return expected values and pieces of the outputs without initial contents, which are poisoned."""
        kept = [number for number in range(len(self.outputs)) if number not in self.sources]
        return [expected[number] for number in kept if number < len(expected)], [
            self.outputs[number] for number in kept
        ]

    def restore(self, packed: torch.Tensor, outputs: torch.Tensor) -> None:
        """Write the initial contents of what is changed in place into a slot's outputs."""
        for place, target in self.inout:  # a kernel on a GPU, no copy engine: see `device.copy`
            target_bytes = self.pieces[target].elements(outputs)
            torch.bitwise_or(self.pieces[place].elements(packed), 0, out=target_bytes)

    @cached_property
    def inputs(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if not piece.out)

    @cached_property
    def outputs(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.out)

    def gaps(self) -> torch.Tensor:
        """Return the offsets of the bytes in a slot of outputs that belong to no element, behind tensors and in
        holes."""
        starts = [*(piece.offset for piece in self.outputs[1:]), self.output_bytes]
        ends = (piece.offset + piece.bytes for piece in self.outputs)
        behind = (torch.arange(*pair) for pair in zip(ends, starts, strict=True))
        return torch.cat([*behind, *(piece.holes() for piece in self.outputs)])

    def describe_place(self, place: int) -> str:
        """Describe which output the byte at offset `place` is next to."""
        index, piece = max(pair for pair in enumerate(self.outputs) if pair[1].offset <= place)
        past = place - piece.offset - piece.bytes
        return f"{past} bytes past the end of output {index}" if past >= 0 else f"between elements of output {index}"

    def data(self, packed: torch.Tensor) -> Tensors:
        """Return a problem's `data`: views of the packed inputs, then outputs filled with zeros."""
        empty = (
            torch.empty_strided(piece.sizes, piece.strides, dtype=piece.dtype, device=packed.device)
            for piece in self.outputs
        )
        data = (*(piece.view(packed) for piece in self.inputs), *(out.zero_() for out in empty))
        return Flat(data, self.binding) if self.binding else data
