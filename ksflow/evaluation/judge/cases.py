"""Cases of a problem: input tensors packed into the bytes of a slot, with the outputs that the oracle expects."""

import inspect
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.buffers import Layout, Piece, Tensors
from ksflow.evaluation.judge.contents import DENORMAL, KINDS, SIGNS, ContentKind, change_contents, changeable_inputs
from ksflow.evaluation.judge.elements import invalid_booleans, is_unsteady
from ksflow.evaluation.judge.in_place import InPlace
from ksflow.evaluation.judge.problem_check import CheckBroke, ProblemCheck
from ksflow.evaluation.judge.tolerance import ALL, AT_RANDOM, COMPARED, Expected, expected, first_error, worst_error
from ksflow.evaluation.sandbox.runners.pytree import replace_tensors
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module

_ALIGN = 256
_GUARD = 1024  # least bytes between two tensors; a write into them is detected, on a CPU and on a GPU
_BLANK = 0xFF  # fills the bytes of a slot outside the inputs: NaN or -1
_PAGE = 4096
_ASKED_AGAIN = 2  # further oracle calls on the first inputs: one call may agree by chance
_PATIENCE_S = 60.0  # for one call of a problem's own check, where the problem sets no limit


@dataclass(eq=False)
class Entry:
    """One set of input contents, packed, with the expected outputs."""

    seed: int
    packed: torch.Tensor
    expected: tuple[Expected, ...]
    secret: bool = True  # whether only the judge knows the seed
    poisons: tuple[int, ...] = ()
    """Byte values to fill the outputs with before a call; empty until `check.poisons` has chosen them."""
    structure: str = ""  # how the inputs differ from those that the problem draws, in words: "x: sorted"

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + sum(each.nbytes for each in self.expected)


class Reference:
    """A problem's `reference.py`, loaded in the judge's process.

    `oracle` returns the expected value of each element. `property_check(data, outputs)` returns why outputs are wrong,
    "" when they are right, for problems with several right outputs. A problem defines one of the two, or both; with
    both, `property_check` alone decides on last outputs for which `oracle` returns nothing.
    """

    in_place = InPlace(())
    _steady = False  # whether the oracle has returned the same for the same inputs
    _products = False  # whether an oracle's row bounds sums of products

    def __init__(self, problem: dict[str, Any], where: str = "cpu") -> None:
        path = Path(problem["root"]) / "reference.py"
        module = load_module(f"ksflow_reference_{abs(hash(str(path)))}", path)
        self.problem = problem
        self.where = where
        self.in_place = InPlace([arg["role"] for arg in problem["args"]])
        self.outputs = sum(arg["role"] != "in" for arg in problem["args"])
        self.generate: Callable[..., Tensors] = module.generate_input
        self._there = {"device": where} if "device" in inspect.signature(self.generate).parameters else {}
        self.kernel: Callable[..., Any] = module.ref_kernel
        if self.in_place.pairs:
            self.generate = lambda **params: self.in_place.apart(module.generate_input(**params))
            self.kernel = self.in_place.answered(module.ref_kernel)
        names = ("oracle", "property_check", "upstream_check")
        asked = {name: self.in_place.asked(found) for name in names if (found := getattr(module, name, None))}
        self.oracle = asked.get("oracle")
        seconds = float(problem.get("limits", {}).get("check_s", _PATIENCE_S))
        self.property_check, self.upstream = (
            ProblemCheck(name, asked[name], self.kernel, seconds) if name in asked else None for name in names[1:]
        )
        self.forbidden: Sequence[str] = getattr(module, "forbidden", ())
        self._movable: dict[str, list[int]] = {}  # by case: indices of the inputs that may have a structure
        self._refused: set[tuple[str, tuple[int, ...], str]] = set()
        if self.oracle is None and self.property_check is None:
            raise ValueError(f"{path} defines neither oracle nor property_check: define one of them")

    @property
    def names(self) -> list[str]:
        """The names of the inputs, as the problem declares them."""
        return [str(arg["name"]) for arg in self.problem["args"] if arg["role"] != "out"]

    def layout(self, data: Tensors) -> Layout:
        """Return the layout of a case's tensors. Raises ValueError for a type that the judge cannot compare."""
        used = [0, 0]
        pieces = []
        for index, tensor in enumerate(data):
            if tensor.dtype not in COMPARED:
                raise ValueError(
                    f"argument {index} is {tensor.dtype}, which the judge cannot compare: use another type"
                )
            out = index >= len(data) - self.outputs
            last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            count = (last + 1) * tensor.element_size() if tensor.numel() else 0
            pieces.append(Piece(tensor.dtype, tuple(tensor.shape), tensor.stride(), used[out], count, out))
            used[out] += -(-(count + _GUARD) // _ALIGN) * _ALIGN
        inputs, outputs = (max(-(-total // _PAGE) * _PAGE, _PAGE) for total in used)
        order = self.in_place.order if self.in_place.pairs else ()
        return Layout(tuple(pieces), inputs, outputs, getattr(data, "binding", {}), self.inout(data), order)

    def inout(self, data: Tensors) -> tuple[tuple[int, int], ...]:
        """The places of what is changed in place: of what is there before a call, and of what is there after it."""
        return self.in_place.pairs or tuple((a, b) for a, b in getattr(data, "binding", {}).get("inout", ()))

    def entry(
        self, case: dict[str, Any], seed: int | None = None, most: int = ALL, kinds: Sequence[ContentKind] = ()
    ) -> tuple[Layout, Entry]:
        """Return the layout and one set of contents for a case. seed: None draws a secret one. most: how many
        elements of each output are compared. kinds: structures of which the inputs get one that the reference can
        bear."""
        seed = secrets.randbits(31) if seed is None else seed
        data = self.data(case, seed)
        layout = self.layout(data)
        found = self._structured(case, data, seed, most, kinds) if kinds else None
        data, structure, wanted = found or (data, "", self.expect(data, most))
        packed = torch.full((layout.input_bytes,), _BLANK, dtype=torch.uint8, device=self.where)
        for piece, tensor in zip(layout.pieces, data, strict=True):
            if not piece.out:
                piece.view(packed).copy_(tensor)
        return layout, Entry(seed, packed, wanted, structure=structure)

    def data(self, case: dict[str, Any], seed: int) -> Tensors:
        """Return a case's tensors, on the device in use if `generate_input` has a parameter `device`."""
        return self.generate(**case["params"], **self._there, seed=seed)

    def kinds(self) -> list[ContentKind]:
        """Return the structures that contents of this problem may have: none without an oracle, because nobody knows
        which inputs the property check relies on, and none that grows for a narrow accumulator."""
        check = self.problem["check"]
        if check.get("contents", "") == "own" or self.oracle is None:
            return []
        grows = check["accumulate"] in ("float32", "float64")
        kinds = [kind for kind in KINDS if grows or not kind.grows]
        return [kind for kind in kinds if self._products or kind.name != SIGNS]

    def structure_contents(
        self, case: dict[str, Any], data: Tensors, seed: int, kind: ContentKind, most: int = ALL
    ) -> tuple[Tensors, str, tuple[Expected, ...]] | None:
        """Return contents in which one input, or every movable input, has the structure `kind`; a name; expected
        outputs. None if the reference does not meet its own bounds on these contents."""
        open_: list[tuple[int, ...]] = [(place,) for place in self._open(case)]
        open_ += [tuple(self._open(case))] if len(open_) > 1 else []
        open_ = [places for places in open_ if (case["name"], places, kind.name) not in self._refused]
        if not open_ or (hasattr(data, "binding") and kind.grows):
            return None
        places = open_[seed % len(open_)]
        made = [change_contents(one, kind, seed) if at in places else one for at, one in enumerate(data)]
        if any(one is None for one in made):
            return None
        other = replace_tensors(data, [one for one in made if one is not None])
        if (wanted := self._holds(other, kind, most)) is None:
            self._refused.add((case["name"], places, kind.name))
            return None
        known, names = len(self.names) == len(data) - self.outputs, self.names
        words = " and ".join(names[at] if known else f"input {at}" for at in places)
        return other, f"{words} {kind.name}", wanted

    def _structured(
        self, case: dict[str, Any], data: Tensors, seed: int, most: int, kinds: Sequence[ContentKind]
    ) -> tuple[Tensors, str, tuple[Expected, ...]] | None:
        """Return the result of the first applicable kind, in an order that the seed determines."""
        order = [kinds[(seed + step) % len(kinds)] for step in range(len(kinds))]
        made = (self.structure_contents(case, data, seed // len(kinds), kind, most) for kind in order)
        return next(filter(None, made), None)

    def _open(self, case: dict[str, Any]) -> list[int]:
        if (name := str(case["name"])) not in self._movable:
            pair = [self.data(case, case["seed"] + step) for step in (0, 1)]
            inputs = [data[: len(data) - self.outputs] for data in pair]
            self._movable[name] = changeable_inputs(*inputs)
        return self._movable[name]

    def _holds(self, data: Tensors, kind: ContentKind, most: int) -> tuple[Expected, ...] | None:
        """Return the expected outputs; None unless the reference's are finite and well within their bounds."""
        with catch_foreign():  # reference.py may raise: its author did not write it for these contents
            wanted = self.expect(data, most, kind.equal)
            held = self._keeps(data, wanted, self.answer(data))
            if held and kind.name == DENORMAL:  # kernels may flush such numbers to zero
                flushed = self.answer(replace_tensors(data, [_flushed(one) for one in data]))
                held = self._keeps(data, wanted, tuple(map(_flushed, flushed)))
            return wanted if held else None
        return None

    def _keeps(self, data: Tensors, wanted: tuple[Expected, ...], outputs: Tensors) -> bool:
        if not all(bool(out.isfinite().all()) for out in outputs if out.dtype.itemsize > 1):
            return False
        for want, out in zip(wanted, outputs, strict=False):
            slack = 0.5 if out.dtype in (torch.float32, torch.float64) else 1.0  # rounding alone may take all
            if first_error(want, out) or worst_error(want, out) > slack:
                return False
        return not self.objection(data, outputs)

    def answer(self, data: Tensors) -> Tensors:
        """Return copies of the reference's outputs."""
        result = self.kernel(data)
        return tuple(out.clone() for out in (result if isinstance(result, tuple | list) else (result,)))

    def objection(self, data: Tensors, outputs: Tensors) -> str:
        """Return why `property_check` rejects the outputs or raises on them, "" if it accepts."""
        if self.property_check is None:
            return ""
        if fault := invalid_booleans(outputs):
            return fault
        try:
            return self.property_check(data, unwrap_single(outputs))
        except CheckBroke as error:
            return str(error)

    def _rows(self, data: Tensors) -> list[dict[str, Any]]:
        assert self.oracle
        result = self.oracle(data)
        return list(result) if isinstance(result, list | tuple) else [result]

    def expect(self, data: Tensors, most: int = ALL, one_way: bool = False) -> tuple[Expected, ...]:
        """Return the expected outputs with their bounds; empty for a problem without an oracle.

        one_way: the roundings of a sum may all have the same sign, as for equal summands. Their sum then grows with n,
        not with sqrt(n); n is the longest dimension, or the row's `terms` if that is larger.
        """
        if self.oracle is None:
            return ()
        count = 0 if self._steady else _ASKED_AGAIN
        copies = [replace_tensors(data, [one.clone() for one in data]) for _ in range(count)]
        rows = self._rows(data)
        for untouched in copies:
            if is_unsteady(*([row["expected"] for row in each] for each in (rows, self._rows(untouched)))):
                raise ValueError(f"the oracle in reference.py {AT_RANDOM}")
        self._steady = True
        outputs = data[len(data) - self.outputs :]
        self._products |= any("spread" in row for row in rows)
        longest = max((size for tensor in data for size in tensor.shape), default=1)
        check, wanted = self.problem["check"], list[Expected]()
        before = {target - len(data) + len(outputs): data[place] for place, target in self.inout(data)}
        for number, (row, out) in enumerate(zip(rows, outputs, strict=self.property_check is None)):
            wider = {"c1": check["c1"] * math.sqrt(max(longest, row["terms"]))} if one_way else {}
            moved = {**row, "expected": row["expected"].to(self.where)}
            wanted.append(expected(moved, out, {**check, **wider}, most, before.get(number)))
        return tuple(wanted)


def _flushed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in (torch.float32, torch.float64):
        return tensor
    return torch.where(tensor.abs() < torch.finfo(torch.float32).tiny, 0.0, tensor)


def unwrap_single(outputs: Tensors) -> Any:
    """Return outputs as a kernel returns them: one output without its tuple."""
    return outputs[0] if len(outputs) == 1 else outputs
