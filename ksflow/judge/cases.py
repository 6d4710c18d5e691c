"""Cases: a reference's tensors packed as the bytes that a slot holds, with what the oracle expects of them."""

import importlib.util
import inspect
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ksflow.judge.own_check import ProblemCheck
from ksflow.judge.tolerance import ALL, Expected, expected
from ksflow.sandbox.runners.pytree import Flat

_ALIGN = 256
_PAGE = 4096
_PATIENCE_S = 60.0
"""For a problem's own check of one answer, where the problem does not say."""

Tensors = tuple[torch.Tensor, ...]


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
        """For the sandbox."""
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
    binding: Mapping[str, Any] = field(default_factory=dict)
    """How a candidate of another format is called (`foreign.tree.Flat`); empty where it gets the tensors."""

    @cached_property
    def inputs(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if not piece.out)

    @cached_property
    def outputs(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.out)

    def data(self, packed: torch.Tensor) -> Tensors:
        """A problem's `data` over packed inputs, with empty outputs."""
        empty = (
            torch.empty_strided(piece.sizes, piece.strides, dtype=piece.dtype, device=packed.device)
            for piece in self.outputs
        )
        data = (*(piece.view(packed) for piece in self.inputs), *(out.zero_() for out in empty))
        return Flat(data, self.binding) if self.binding else data


@dataclass(eq=False)
class Entry:
    """One set of contents: its packed inputs and what must come out."""

    seed: int
    packed: torch.Tensor
    expected: tuple[Expected, ...]
    number: int = 0
    """Which of a stock's contents it is: what a report may say while the seed is still a secret."""
    uses: int = 0
    """In how many judgements it was shown."""

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.packed.nbytes + sum(3 * e.low.nbytes + (0 if e.sample is None else 8) for e in self.expected)


class Reference:
    """A problem's `reference.py`, run here: only the judge's side does.

    `oracle` says what is right, element by element; a `property_check(data, outputs)` says why an answer is wrong (""
    when it is not), for problems with more than one right answer. A problem has one of them, or both.
    """

    def __init__(self, problem: dict[str, Any], where: str = "cpu") -> None:
        path = Path(problem["root"]) / "reference.py"
        module = loaded(f"ksflow_reference_{abs(hash(str(path)))}", path)
        self.problem = problem
        self.where = where
        self.outputs = sum(arg["role"] == "out" for arg in problem["args"])
        self.generate: Callable[..., Tensors] = module.generate_input
        self._there = {"device": where} if "device" in inspect.signature(self.generate).parameters else {}
        self.kernel: Callable[..., Any] = module.ref_kernel
        self.oracle: Callable[..., Any] | None = getattr(module, "oracle", None)
        self.property_check = self._own(module, "property_check")
        self.upstream = self._own(module, "upstream_check")
        if self.oracle is None and self.property_check is None:
            raise ValueError(f"{path} defines neither oracle nor property_check: nothing says what is right")

    def _own(self, module: ModuleType, name: str) -> ProblemCheck | None:
        """The problem's check of that name, where it has one."""
        check = getattr(module, name, None)
        seconds = float(self.problem.get("limits", {}).get("check_s", _PATIENCE_S))
        return ProblemCheck(name, check, self.kernel, seconds) if check is not None else None

    def layout(self, data: Tensors) -> Layout:
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
        return Layout(tuple(pieces), inputs, outputs, getattr(data, "binding", {}))

    def entry(self, case: dict[str, Any], seed: int | None = None, most: int = ALL) -> tuple[Layout, Entry]:
        """Contents for a case, from its public seed or a secret one, checked at `most` elements of each output."""
        seed = secrets.randbits(31) if seed is None else seed
        data = self.data(case, seed)
        layout = self.layout(data)
        packed = torch.zeros(layout.input_bytes, dtype=torch.uint8, device=self.where)
        for piece, tensor in zip(layout.pieces, data, strict=True):
            if not piece.out:
                piece.view(packed).copy_(tensor)
        return layout, Entry(seed, packed, self.expect(data, most))

    def data(self, case: dict[str, Any], seed: int) -> Tensors:
        """A case's tensors, drawn where they are used if the problem can do that (`generate_input(..., device)`)."""
        return self.generate(**case["params"], **self._there, seed=seed)

    def expect(self, data: Tensors, most: int = ALL) -> tuple[Expected, ...]:
        """What must come out for these inputs, with its bound; nothing where only a property is asked for."""
        if self.oracle is None:
            return ()
        found = self.oracle(data)
        outputs = data[len(data) - self.outputs :]
        rows = found if isinstance(found, (list, tuple)) else [found]
        check = self.problem["check"]
        moved = [{**row, "expected": row["expected"].to(self.where)} for row in rows]
        return tuple(expected(row, out, check, most) for row, out in zip(moved, outputs, strict=True))


def loaded(name: str, path: Path) -> ModuleType:
    """A problem's own Python, run: in processes for that only."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
