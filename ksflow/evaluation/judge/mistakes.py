"""The mutation score of a problem: how many kinds of planted mistakes its check kills.

A mistake changes the reference's outputs, or its inputs before it runs. It counts if it makes a difference on some
contents, and is killed if one of the judge's contents, drawn or structured, rejects it: a kernel with that mistake
meets all of them. A kind is killed when it is killed for each output or input.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.judge.elements import parts, rms
from ksflow.evaluation.judge.mutants import Change, Right, WrongAnswer, digits, left, twice
from ksflow.evaluation.judge.shortcuts import differs, of_rank

_TILE, _RANK = 16, 8
_TELLING = 64  # multiple of the reference's own error that a mistake must make in some element
_FEW = 16  # elements of an output from which on the reference's own error can be estimated
_TF32, _BF16, _FP8 = 10, 7, 3  # mantissa bits


def _set(tensor: torch.Tensor, start: int, value: float, dim: int = -1) -> torch.Tensor:
    """Return a copy with one value in the slices from `start` on; a negative start counts from the end."""
    result = tensor.clone(memory_format=torch.contiguous_format)
    size = result.shape[dim]
    start = max(size + start, 0) if start < 0 else start
    result.narrow(dim, start, size - start).fill_(value)
    return result


def _every(step: int) -> Change:
    return lambda x: x[..., torch.arange(x.shape[-1], device=x.device) // step * step]


def _with_one(x: torch.Tensor, value: float) -> torch.Tensor:
    flat = x.flatten().clone()
    flat[flat.numel() // 2] = value
    return flat.view(x.shape)


_ANY: dict[str, Change] = {
    "zeros": torch.zeros_like,
    "the first slice for all": lambda x: x[:1].expand_as(x),
    "the first eighth repeated": lambda x: x[..., torch.arange(x.shape[-1], device=x.device) % -(-x.shape[-1] // 8)],
    "the first half for the rest": lambda x: x[..., torch.arange(x.shape[-1], device=x.device) % -(-x.shape[-1] // 2)],
    "the last slice dropped": lambda x: _set(x, -1, 0, 0),
    "the last column dropped": lambda x: _set(x, -1, 0),
    "the last tile dropped": lambda x: _set(x, -_TILE, 0),
    "all but the first eighth dropped": lambda x: _set(x, -(-x.shape[-1] // 8), 0),
    "one of two elements for both": _every(2),
    "one of eight elements for all": _every(8),
    "off by one slice": lambda x: x.roll(1, 0),
    "off by one column": lambda x: x.roll(1, -1),
    "off by one tile": lambda x: x.roll(_TILE, -1),
    "backwards": lambda x: x.flip(-1),
    "transposed": lambda x: x.mT if x.ndim > 1 and x.shape[-1] == x.shape[-2] else x,
    "rows and columns confused": lambda x: x.mT.reshape(x.shape) if x.ndim > 1 else x,
    "without signs": torch.abs,
    "negated": torch.neg,
    "a scale of two missing": lambda x: x / 2,
}  # of outputs and inputs
_OUTPUT: dict[str, Change] = {
    "the mean everywhere": lambda x: x.mean().expand_as(x),
    "added up twice": lambda x: x * 2,
    "2 % too large": lambda x: x * 1.02,
    "2 % of its size too large": lambda x: x + 0.02 * rms(x),
    "one wrong element": lambda x: _with_one(x, float(x.flatten()[0] + rms(x) + 1)),
    "one NaN": partial(_with_one, value=torch.nan),
    "one infinity": partial(_with_one, value=torch.inf),
    "the last tile never written": lambda x: _set(x, -_TILE, torch.nan),
    "cut off at two standard deviations": lambda x: x.clamp(
        x.mean() - 2 * x.std(correction=0), x.mean() + 2 * x.std(correction=0)
    ),
    "small values flushed to zero": lambda x: torch.where(x.abs() < 0.01 * rms(x), 0.0, x),
    "of rank 1": of_rank(1),
    "of a low rank": of_rank(_RANK),
}
_LOWER: dict[str, tuple[Change, int]] = {
    "rounded to TF32": (partial(digits, kept=_TF32), _TF32),
    "cut to TF32": (partial(digits, kept=_TF32, cut=True), _TF32),
    "rounded to fp16": (lambda x: x.clamp(-65504, 65504).half().to(x.dtype), _TF32),
    "rounded to bf16": (partial(digits, kept=_BF16), _BF16),
    "cut to bf16": (partial(digits, kept=_BF16, cut=True), _BF16),
    "rounded to fp8": (partial(digits, kept=_FP8), _FP8),
}  # the rounding, and the mantissa bits left


def mistakes(right: Right) -> Iterator[WrongAnswer]:
    """Yield all mistakes for a case with such contents."""
    for index, out in enumerate(right.outputs):
        where = f" (output {index})" if len(right.outputs) > 1 else ""
        if not out.ndim or not _changeable(out):
            continue
        for name, change in (_ANY | _OUTPUT | _precisions(out, min(right.digits, _own(out)))).items():
            kind, what = f"outputs: {name}", f"outputs {name}{where}"
            yield WrongAnswer.of_output(kind, what, index, partial(_wide, change))
    yield from _of_whole(right)
    for index, tensor in enumerate(right.inputs):
        if not tensor.ndim or not _changeable(tensor) or tensor.numel() < 2:
            continue
        lower = _precisions(tensor, min(right.digits, _own(tensor))) if len(right.inputs) > 1 else {}
        for name, change in (_ANY | lower).items():
            kind, what = f"an input: {name}", f"{right.name(index)}: {name}"
            yield WrongAnswer.of_input(kind, what, index, partial(_wide, change))


def _of_whole(right: Right) -> Iterator[WrongAnswer]:
    def stale(joined: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], now: Right) -> Tensors:
        pairs = zip(now.outputs, now.run(now.other), strict=True)
        return tuple(joined(new.float(), old.float()).view(new.shape).to(new.dtype) for new, old in pairs)

    def half(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        middle = -(-new.numel() // 2)
        return torch.cat((new.flatten()[:middle], old.flatten()[middle:]))

    def all_inputs(places: list[int], change: Change, now: Right) -> Tensors:
        return now.rerun({at: _wide(change, now.data[at]) for at in places})

    yield WrongAnswer("the answer to other inputs", "the answer to other inputs", lambda now: now.run(now.other))
    yield WrongAnswer("added to an earlier answer", "outputs added to an earlier answer", partial(stale, torch.add))
    yield WrongAnswer("half of an earlier answer", "half of the outputs are an earlier answer's", partial(stale, half))
    if right.inout:
        unchanged = "an argument is left as it was"
        yield WrongAnswer("changed in place: not at all", unchanged, lambda now: (*left(now), now.outputs)[0])
        yield WrongAnswer("changed in place: twice", "arguments are changed twice", twice)
    first = right.outputs[0]
    for place, one in enumerate(right.inputs):
        if one.shape == first.shape and one.dtype == first.dtype:
            copied = partial(lambda place, now: now.but_for(0, now.data[place]), place)
            yield WrongAnswer("an input copied", "an input is copied", copied)
    for name, (change, kept) in _LOWER.items():
        wide = [at for at, one in enumerate(right.inputs) if _changeable(one) and _own(one) > kept]
        if wide and kept < right.digits:
            yield WrongAnswer(f"all inputs: {name}", f"all inputs {name}", partial(all_inputs, wide, change))


def score(rights: Iterable[Right], accepts: Callable[[Right, Tensors], bool], seconds: float) -> str:
    """Return how many kinds of mistakes are killed, and which survive, in words. rights: drawn contents, then
    structured ones, which are used while some mistake survives."""
    end = time.monotonic() + seconds
    alive: dict[tuple[str, str], None] = {}
    seen: set[tuple[str, str]] = set()
    late = False
    for right in rights:
        for mistake in mistakes(right):
            key = (mistake.kind, mistake.what)
            done = key not in alive and (key in seen or right.structured)
            if done or (late := late or time.monotonic() > end):
                continue
            answers: list[Tensors] = []
            with catch_foreign():  # the reference may raise on these contents
                made = mistake.answer(right)
                pairs = enumerate(zip(made, right.outputs, strict=True))
                answers = [made] if any(_tells(*pair, right, place) for place, pair in pairs) else []
            for answer in answers:
                seen.add(key)
                if accepts(right, answer):
                    alive[key] = None
                else:
                    alive.pop(key, None)
        if late or (right.structured and not alive):
            break
    kinds, left = {kind for kind, _ in seen}, dict([*alive])
    words = f"kills {len(kinds) - len(left)} of {len(kinds)} kinds of planted mistakes"
    survivors = f"; it does not detect: {', '.join(left.values())}" if left else ""
    return f"{words}{survivors}{'; there was no time for the others' if late else ''}"


def _tells(mine: torch.Tensor, theirs: torch.Tensor, right: Right, place: int) -> bool:
    """Return whether an output differs by far more than the allowed arithmetic explains."""
    if not differs(mine, theirs, right, place) or not theirs.is_floating_point():
        return not torch.equal(mine, theirs) and not theirs.is_floating_point()
    off = (mine.double() - theirs.double()).abs().nan_to_num(torch.inf)
    least = max(torch.finfo(theirs.dtype).eps, 2.0**-right.digits) / 4 if theirs.numel() >= _FEW else 1e-4
    return float(off.max()) > _TELLING * max(least * rms(theirs), right.own_error(place))


def _changeable(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16) or (
        tensor.is_floating_point() and tensor.dtype.itemsize == 1
    )


def _own(tensor: torch.Tensor) -> int:
    return round(-torch.tensor(torch.finfo(tensor.dtype).eps).log2().item())


def _precisions(tensor: torch.Tensor, most: int) -> dict[str, Change]:
    return {name: change for name, (change, kept) in _LOWER.items() if kept < most}


def _wide(change: Change, tensor: torch.Tensor) -> torch.Tensor:
    """Return a changed tensor of any floating type; the change is made in float32 or fp64."""
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return change(parts(wide)).to(tensor.dtype)
