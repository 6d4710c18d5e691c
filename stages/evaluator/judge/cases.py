"""Cases: a reference's tensors packed as the bytes that a slot holds, with what the oracle expects of them."""

import importlib.util
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ksflow.stages.evaluator.judge.bound import Expected, expected

_ALIGN = 256
_PAGE = 4096


@dataclass(frozen=True)
class Piece:
    """Where one tensor lies in a slot."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    bytes: int
    out: bool

    def view(self, region: torch.Tensor) -> torch.Tensor:
        """The tensor in a slot's bytes."""
        flat = region[self.offset : self.offset + self.bytes].view(self.dtype)
        return flat.as_strided(self.sizes, self.strides)

    def message(self) -> dict[str, Any]:
        """For the box."""
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
    """How a case's tensors lie in a slot of the inputs and a slot of the outputs."""

    pieces: tuple[Piece, ...]
    input_bytes: int
    output_bytes: int

    @cached_property
    def outputs(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.out)


@dataclass(frozen=True)
class Entry:
    """One set of contents: its packed inputs and what must come out."""

    seed: int
    packed: torch.Tensor
    expected: tuple[Expected, ...]
    data: tuple[torch.Tensor, ...] = ()
    """Kept where the upstream check needs it."""


class Reference:
    """A problem's `reference.py`, run here: only the judge's side does."""

    def __init__(self, problem: dict[str, Any]) -> None:
        path = Path(problem["root"]) / "reference.py"
        name = f"ksflow_reference_{abs(hash(str(path)))}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        self.problem = problem
        self.outputs = sum(arg["role"] == "out" for arg in problem["args"])
        self.generate: Callable[..., tuple[torch.Tensor, ...]] = module.generate_input
        self.kernel: Callable[..., Any] = module.ref_kernel
        self.oracle: Callable[..., Any] = module.oracle
        self.upstream: Callable[..., str] | None = getattr(module, "upstream_check", None)

    def layout(self, data: tuple[torch.Tensor, ...]) -> Layout:
        """Lay out a case's tensors: inputs in one slot, outputs in another."""
        used = [0, 0]
        pieces = []
        for index, tensor in enumerate(data):
            out = index >= len(data) - self.outputs
            last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            count = (last + 1) * tensor.element_size() if tensor.numel() else 0
            pieces.append(Piece(tensor.dtype, tuple(tensor.shape), tensor.stride(), used[out], count, out))
            used[out] += -(-count // _ALIGN) * _ALIGN
        inputs, outputs = (max(-(-total // _PAGE) * _PAGE, _PAGE) for total in used)
        return Layout(tuple(pieces), inputs, outputs)

    def entry(self, case: dict[str, Any], seed: int | None = None, keep: bool = False) -> tuple[Layout, Entry]:
        """Contents for a case, from its public seed or a secret one."""
        seed = secrets.randbits(31) if seed is None else seed
        data = self.generate(**case["params"], seed=seed)
        layout = self.layout(data)
        packed = torch.zeros(layout.input_bytes, dtype=torch.uint8)
        for piece, tensor in zip(layout.pieces, data, strict=True):
            if not piece.out:
                piece.view(packed).copy_(tensor)
        return layout, Entry(seed, packed, self.expect(data), data if keep else ())

    def expect(self, data: tuple[torch.Tensor, ...]) -> tuple[Expected, ...]:
        """What must come out for these inputs, with its bound."""
        found = self.oracle(data)
        outputs = data[len(data) - self.outputs :]
        rows = found if isinstance(found, (list, tuple)) else [found]
        check = self.problem["check"]
        return tuple(expected(row, out, check) for row, out in zip(rows, outputs, strict=True))
