"""Negative controls: common kinds of wrong answers, made from a right one, that a check must reject."""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ksflow.evaluation.judge.bounds import ALLOWED
from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.elements import parts, rms, same_bits, strips, to_comparable
from ksflow.evaluation.judge.tolerance import Expected
from ksflow.evaluation.sandbox.runners.pytree import replace_tensors
from ksflow.records.base import Json

Change = Callable[[torch.Tensor], torch.Tensor]

WORDS = tomllib.loads(Path(__file__).with_name("probes.toml").read_text(encoding="utf-8"))
_SCALE, _BF16 = 1.02, 7
_BYTES = (0xFF, 0x3F, 0x02)  # bytes of memory that was never written


@dataclass(frozen=True)
class Right:
    """One case's contents and the reference's answer, from which wrong answers are made."""

    data: Tensors
    outputs: Tensors
    want: tuple[Expected, ...]  # the oracle's; empty if only a property is checked
    other: Tensors  # other contents of the same case
    run: Callable[[Tensors], Tensors]  # the reference
    digits: int = 23  # mantissa bits of the arithmetic that the problem asks for
    inout: tuple[tuple[int, int], ...] = ()  # indices in `data` of what is changed in place, before and after a call
    names: Sequence[str] = ()  # of the inputs, if every case has the same
    structured: bool = False  # whether the contents are not the problem's own draw

    @classmethod
    def of(cls, reference: Reference, case: Json) -> "Right":
        """Return the contents and the answer at a case's seed."""
        data, other = (reference.data(case, case["seed"] + step) for step in (0, 1))
        want, inout, check = reference.expect(data), reference.inout(data), reference.problem["check"]
        eps = max(ALLOWED[check.get("allow", "")], torch.finfo(getattr(torch, check["accumulate"])).eps)
        digits = min(round(-math.log2(eps)), 23)
        return cls(data, reference.answer(data), want, other, reference.answer, digits, inout, reference.names)

    @property
    def inputs(self) -> Sequence[torch.Tensor]:
        return self.data[: len(self.data) - len(self.outputs)]

    @property
    def foreign(self) -> bool:
        """Whether the problem is in another project's format."""
        return hasattr(self.data, "binding")

    def name(self, index: int) -> str:
        return self.names[index] if len(self.names) == len(self.inputs) else f"input {index}"

    def own_error(self, index: int) -> float:
        """Return the root mean square error of the reference's own output; 0 if not all of it is known."""
        want = self.want[index] if index < len(self.want) else None
        if want is None or want.sample is not None:
            return 0.0
        return rms(self.outputs[index].reshape(-1), want.value)

    def but_for(self, index: int, output: torch.Tensor) -> Tensors:
        """Return the outputs with one replaced."""
        return (*self.outputs[:index], output, *self.outputs[index + 1 :])

    def rerun(self, changed: Mapping[int, torch.Tensor]) -> Tensors:
        """Return the reference's outputs with some inputs replaced. May raise whatever the reference does."""
        if all(same_bits(self.data[index], instead) for index, instead in changed.items()):
            return self.outputs
        tensors = [tensor.clone() for tensor in self.data]
        for index, instead in changed.items():
            tensors[index].copy_(instead)
        return self.run(replace_tensors(self.data, tensors))


@dataclass(frozen=True)
class WrongAnswer:
    """A shortcut or a mistake of a kernel, with the outputs that it has."""

    kind: str
    what: str  # the kernel's behaviour
    answer: Callable[[Right], Tensors]
    """Returns the outputs on contents of the same case. May raise whatever the reference does."""
    place: int | None = None  # index of the one input that is read in another way

    @classmethod
    def of_input(cls, kind: str, what: str, place: int, change: Change) -> "WrongAnswer":
        """Return the answer to a changed input."""
        return cls(kind, what, lambda right: right.rerun({place: change(right.data[place])}), place)

    @classmethod
    def of_output(cls, kind: str, what: str, place: int, change: Change) -> "WrongAnswer":
        """Return the right answer with one output changed."""
        return cls(kind, what, lambda right: right.but_for(place, change(right.outputs[place])))


@dataclass(frozen=True)
class Mutant:
    """A kind of wrong answer."""

    name: str
    answers: Callable[[Right], list[Tensors]]
    """Returns answers that must all be rejected; none if the kind does not apply."""
    meaning: str
    remedy: str
    otherwise: str  # why the kind does not apply


def _one_output(change: Change, floats_only: bool = True) -> Callable[[Right], list[Tensors]]:
    """Return a function that makes one answer per output with an oracle: that output changed, the others right."""

    def answers(right: Right) -> list[Tensors]:
        return [
            right.but_for(index, change(out))
            for index, out in enumerate(right.outputs)
            if right.want and out.numel() and (parts(out).is_floating_point() or not floats_only)
        ]

    return answers


def _mean(out: torch.Tensor) -> torch.Tensor:
    total, count = 0.0, 0
    for (part,) in strips(out):
        wide = part.double()
        sound = wide[wide.isfinite()]
        total, count = total + float(sound.sum()), count + sound.numel()
    mean = torch.tensor(total / count if count else 0.0, dtype=torch.float64, device=out.device)
    result = torch.empty_like(out, memory_format=torch.contiguous_format)
    flat = to_comparable(result)
    flat.copy_((mean if flat.is_floating_point() else mean.round()).to(flat.dtype).expand(flat.shape))
    return result


def _elementwise(out: torch.Tensor, change: Change) -> torch.Tensor:
    result = torch.empty_like(out, memory_format=torch.contiguous_format)
    for part, into in strips(out, result):
        into.copy_(change(part.double()))
    return result


def _shifted(out: torch.Tensor) -> torch.Tensor:
    step = (_SCALE - 1) * rms(out)
    return _elementwise(out, lambda wide: wide + step)


def _last(change: Change) -> Change:
    def changed(out: torch.Tensor) -> torch.Tensor:
        result = out.clone(memory_format=torch.contiguous_format)
        flat = parts(result).view(-1)
        flat[-1] = change(flat)
        return result

    return changed


def _another(flat: torch.Tensor) -> torch.Tensor:
    """Return the element that differs most from the last one, as with a wrong index; if all are equal, one more."""
    if flat.dtype is torch.bool:
        return ~flat[-1]
    last = flat[-1].double().nan_to_num()
    far, apart = flat[-1], 0.0
    for (part,) in strips(flat):
        off = (part.double().nan_to_num() - last).abs()
        if float(off.max()) > apart:
            far, apart = part[int(off.argmax())], float(off.max())
    return far if apart else (last + 1).to(flat.dtype)


def _nan(flat: torch.Tensor) -> torch.Tensor:
    last = flat[-1].double()
    return torch.where(last.isnan(), 0.0, torch.nan).to(flat.dtype)


def _unwritten(right: Right) -> list[Tensors]:
    def filled(out: torch.Tensor, value: int) -> torch.Tensor:
        raw = torch.full((out.nbytes,), value, dtype=torch.uint8, device=out.device)
        return raw.view(out.dtype).view(out.shape)

    return [tuple(filled(out, value) for out in right.outputs) for value in _BYTES]


def left(right: Right) -> list[Tensors]:
    """Return outputs for each argument that is changed in place, with that one unchanged. Left out: in another
    format's problem, an argument that the reference leaves unchanged on these contents."""
    pairs = [(target - len(right.inputs), right.data[place]) for place, target in right.inout]
    return [right.but_for(at, old) for at, old in pairs if not (right.foreign and same_bits(old, right.outputs[at]))]


def twice(right: Right) -> Tensors:
    """Return the outputs of a kernel that applies its change twice."""
    return right.rerun({place: right.outputs[target - len(right.inputs)] for place, target in right.inout})


def _rough(right: Right) -> list[Tensors]:
    """Return the reference on inputs in bf16, and its outputs in bf16, truncated and rounded, where they differ."""
    if right.digits <= _BF16:
        return []
    answers: list[Tensors] = []
    for cut in (True, False):
        answers.append(right.rerun({at: digits(tensor, _BF16, cut) for at, tensor in enumerate(right.inputs)}))
        answers.append(tuple(digits(out, _BF16, cut) for out in right.outputs))
    return [answer for answer in answers if not all(map(_same, answer, right.outputs))]


def digits(tensor: torch.Tensor, kept: int, cut: bool = False) -> torch.Tensor:
    """Return float32 or fp64 numbers with `kept` mantissa bits (TF32 10, bf16 7): rounded to nearest even, or truncated
    if `cut`. Other types are copied."""
    result = tensor.clone()
    if tensor.is_complex():
        parts(result).copy_(digits(parts(tensor), kept, cut))
    elif tensor.dtype in (torch.float32, torch.float64):
        bits, gone = tensor.float().contiguous().view(torch.int32), 23 - kept
        near = bits if cut else bits + ((1 << (gone - 1)) - 1) + ((bits >> gone) & 1)
        result.copy_(torch.where(tensor.isfinite(), (near & -(1 << gone)).view(torch.float32), tensor))
    return result


def _same(first: torch.Tensor, other: torch.Tensor) -> bool:
    pairs = strips(first, other)
    return all(torch.equal(mine.double().nan_to_num(), theirs.double().nan_to_num()) for mine, theirs in pairs)


def unread_substitutes(right: Right, index: int) -> list[torch.Tensor]:
    """Return replacements for an input that a kernel may not read: the other contents, zeros, the mean. Integers may
    be indices: on a GPU only existing values are used, because a wrong index would end the judge."""
    tensor = right.data[index]
    if parts(tensor).is_floating_point() or tensor.dtype.itemsize == 1:
        others = [right.other[index], torch.zeros_like(tensor)]
        others += [_mean(tensor)] if tensor.dtype.itemsize > 1 else []
    else:
        first = tensor.reshape(-1)[:1].expand(tensor.numel()).view(tensor.shape)
        others = [first] if tensor.is_cuda else [right.other[index], first]
    return [other for other in others if other.shape == tensor.shape and not same_bits(other, tensor)]


_ANSWERS: dict[str, Callable[[Right], list[Tensors]]] = {
    "zeros": lambda right: [tuple(map(torch.zeros_like, right.outputs))],
    "an argument left as it was": left,
    "a constant": lambda right: (
        [tuple(map(_mean, right.outputs))] if any(out.numel() > 1 for out in right.outputs) else []
    ),
    "the answer to other inputs": lambda right: [right.run(right.other)],
    "a wrong scale": _one_output(lambda out: _elementwise(out, lambda wide: wide * _SCALE)),
    "a shift": _one_output(_shifted),
    "lower precision": _rough,
    "one wrong element": _one_output(_last(_another), floats_only=False),
    "one NaN": _one_output(_last(_nan)),
    "unwritten outputs": _unwritten,
}
MUTANTS = tuple(
    Mutant(name, answers, **{**WORDS["usual"], **WORDS["mutants"][name]}) for name, answers in _ANSWERS.items()
)
