"""Shortcuts: answers of a kernel that reads half of an input, samples it, or rounds an operand.

Each is made by the reference itself, on inputs of which a part is missing or coarse, or from its own outputs. Whether a
problem can reject them depends on its bound and on its contents: the mean of a million values around 10 hardly changes
when half of them are left out. Only a shortcut that changes the outputs counts.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.judge.elements import parts, rms
from ksflow.evaluation.judge.mutants import WORDS, Change, Right, WrongAnswer, digits, unread_substitutes

_INPUTS, _DIMENSIONS = 4, 3  # how many of the largest inputs and dimensions are tried
_TAIL, _COARSE = 8, 8
_FEWEST = 16  # least rows and columns of a matrix that is replaced by one of low rank
_MOST_RANK = 64
_ENOUGH_BITS = {torch.bfloat16: 4, torch.float16: 7}
"""Mantissa bits of a 16-bit number that an fp8 operand (e4m3) lacks."""
UNREAD = "one input left unread"
"""Reported and not refused for another format's tolerance, which may be wide enough to ignore small biases."""
KINDS: dict[str, str] = WORDS["shortcuts"]
"""Kind of shortcut -> why it may not apply."""


def shortcuts_on(right: Right) -> Iterator[WrongAnswer]:
    """Yield the shortcuts for a case with such contents; `what` says "reads the first half of x only"."""
    yield from _of_outputs(right)
    inputs = right.inputs
    for index, tensor in enumerate(inputs if len(inputs) > 1 else ()):
        for number, _ in enumerate(unread_substitutes(right, index) if tensor.numel() else ()):
            yield WrongAnswer(UNREAD, f"never reads {right.name(index)}", _without(index, number), index)
    # integers wider than a byte may be indices, and another value may be out of range
    whole = [
        n for n, t in enumerate(inputs) if t.numel() > 1 and (parts(t).is_floating_point() or t.dtype.itemsize == 1)
    ]
    largest = sorted(whole, key=lambda index: -inputs[index].numel())[:_INPUTS]
    for index in largest:
        yield from _of_input(right, index)
        if len(largest) > 1:  # a single operand: rounding it gains nothing
            yield from _rounded(right, index)


def answers(shortcut: WrongAnswer, right: Right) -> Iterator[Tensors]:
    """Yield, for each output that the shortcut changes: that output, the others right."""
    for index, (mine, theirs) in enumerate(zip(shortcut.answer(right), right.outputs, strict=True)):
        if mine.shape == theirs.shape and differs(mine, theirs, right, index):
            yield right.but_for(index, mine)


def _of_input(right: Right, place: int) -> Iterator[WrongAnswer]:
    tensor, name = right.data[place], right.name(place)
    for dim in sorted(range(tensor.ndim), key=lambda dim: -tensor.shape[dim])[:_DIMENSIONS]:
        n = tensor.shape[dim]
        along = f" of {name}" + (f" along dimension {dim}" if tensor.ndim > 1 else "")
        for left, words in ((n // 2, "half"), (n - n // _TAIL, f"{_TAIL - 1} of {_TAIL} parts")):
            if 0 < left < n:
                kind, first = "a part of an input", f"takes the first {words}{along}"
                again = _taken(dim, torch.arange(n) % left)
                yield WrongAnswer.of_input(kind, f"{first} for the rest too", place, again)
                if parts(tensor).is_floating_point():
                    yield WrongAnswer.of_input(kind, f"{first} and nothing else", place, _cut_off(dim, left))
        for step in (2, _COARSE):
            if n >= 2 * step:
                every = f"takes one of every {step} elements{along} for all of them"
                change = _taken(dim, torch.arange(n) // step * step)
                yield WrongAnswer.of_input("a sample of an input", every, place, change)


def _rounded(right: Right, place: int) -> Iterator[WrongAnswer]:
    kind, what, dtype = "one operand in lower precision", f"rounds {right.name(place)} to", right.data[place].dtype
    if dtype in _ENOUGH_BITS:
        yield WrongAnswer.of_input(kind, f"{what} the digits of fp8", place, _to_fp8)
    elif dtype in (torch.float32, torch.float64):
        for name, kept in (("bf16", 7), ("TF32", 10)):
            if kept < right.digits:
                yield WrongAnswer.of_input(kind, f"{what} {name}", place, partial(digits, kept=kept))


def _of_outputs(right: Right) -> Iterator[WrongAnswer]:
    for index, out in enumerate(right.outputs):
        number = f" of output {index}" if len(right.outputs) > 1 else ""
        for dim in sorted(range(out.ndim), key=lambda dim: -out.shape[dim])[:_DIMENSIONS]:
            if out.shape[dim] >= 4:
                what = f"computes every other element along dimension {dim}{number} and copies it to the next"
                twice = _taken(dim, torch.arange(out.shape[dim]) // 2 * 2)
                yield WrongAnswer.of_output("outputs copied from their neighbours", what, index, twice)
        if out.is_floating_point() and out.ndim > 1 and min(out.shape[-2:]) >= _FEWEST:
            for rank in (1, min(min(out.shape[-2:]) // _TAIL, _MOST_RANK)):
                what = f"computes a matrix of rank {rank} in place of the output{number}"
                yield WrongAnswer.of_output("a matrix of low rank", what, index, of_rank(rank))


def _without(index: int, number: int) -> Callable[[Right], Tensors]:
    def answer(right: Right) -> Tensors:
        instead = unread_substitutes(right, index)[number:]
        return right.rerun({index: instead[0]}) if instead else right.outputs

    return answer


def _taken(dim: int, index: torch.Tensor) -> Change:
    """Return a function that selects slices of a tensor, keeping its shape."""

    def change(whole: torch.Tensor) -> torch.Tensor:
        plain = whole.view(torch.uint8) if whole.dtype.itemsize == 1 else whole
        return plain.index_select(dim, index.to(whole.device)).view(whole.dtype)

    return change


def _cut_off(dim: int, left: int) -> Change:
    """Return a function that zeroes the slices from `left` on."""

    def change(whole: torch.Tensor) -> torch.Tensor:
        result = whole.clone()
        plain = result.view(torch.uint8) if result.dtype.itemsize == 1 else result
        plain.narrow(dim, left, result.shape[dim] - left).zero_()
        return result

    return change


def _to_fp8(whole: torch.Tensor) -> torch.Tensor:
    """Return 16-bit numbers rounded to the three mantissa bits of e4m3."""
    bits = _ENOUGH_BITS[whole.dtype]
    near = whole.contiguous().view(torch.int16) + (1 << (bits - 1))
    return (near & -(1 << bits)).view(whole.dtype)


def of_rank(rank: int) -> Change:
    """Return a function that gives the nearest matrix (each, in a batch) of that rank, by a few iterations."""

    def change(whole: torch.Tensor) -> torch.Tensor:
        wide = whole.float()
        if not bool(wide.isfinite().all()):
            return whole
        left, sizes, right = torch.svd_lowrank(wide, q=rank, niter=2)
        return ((left * sizes.unsqueeze(-2)) @ right.mT).to(whole.dtype)

    return change


def differs(mine: torch.Tensor, theirs: torch.Tensor, right: Right, index: int) -> bool:
    """Return whether an output differs by more than rounding and more than the reference's own error."""
    mine, theirs = parts(mine), parts(theirs)
    if not theirs.is_floating_point():
        return not torch.equal(mine, theirs)
    if not torch.equal(mine.isfinite(), theirs.isfinite()):
        return True
    least = torch.finfo(theirs.dtype).eps / 4 * rms(theirs)
    return rms(mine, theirs) > max(least, 2 * right.own_error(index))
