"""Contents beside a problem's own draw: structured ones, and ones like recorded inputs of a model's modules.

Random contents hide kernels that are right on random contents alone: a top-k that keeps too few candidates, a truncated
recurrence, a softmax that skips the maximum. `KINDS` are changes of drawn inputs; `cases.Reference` uses those on which
the reference meets its own bounds.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

KEPT = "met.pt"  # file beside a reference: recorded inputs of a few calls
_SPREAD, _TINY = 0.1, 0.02
"""A constant input is drawn with a spread of a tenth, at least so much, and its sign, so that a kernel must read it."""

_MANY = 16  # distinct values from which on an input is not a mask or a table of flags
_LOOKED_AT = 4096
_DOWN, _FAR, _OUTLIER, _SHIFT = 2.0**-12, 6, 32.0, 2.0
"""Scale of a tail; binary orders between rows' scales; outliers as a multiple of the largest value; shifts of rows as a
multiple of their root mean square."""
Shapes = Sequence[Sequence[int]]


@dataclass(frozen=True)
class ContentKind:
    """One way to change an input, in float32 or fp64 with at least one dimension."""

    name: str
    change: Callable[[torch.Tensor, torch.Generator], torch.Tensor]
    grows: bool = False
    """Whether values may exceed the drawn ones or change sign: excluded for constant tolerances and 16-bit
    arithmetic."""
    equal: bool = False
    """Whether many values are equal, close or in order: the roundings of their sum may all have one sign, for which
    bounds are widened (`cases.Reference.expect`)."""
    timed: bool = False  # whether it costs no kernel more time than drawn contents


def _uniform(x: torch.Tensor, generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.rand(shape or tuple(x.shape), generator=generator, device=x.device)


def _rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _uniform(x, generator, *(x.shape[:-1] if x.ndim > 1 else x.shape), *((1,) if x.ndim > 1 else ()))


def _one_place(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = _uniform(x, generator)
    return drawn == drawn.amax(-1, keepdim=True)


def _tied(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    few = min(4, x.shape[-1])
    return x[..., (_uniform(x, generator, x.shape[-1]) * few).long().clamp_max(few - 1)]


def _faded(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    start = 1 + int(_uniform(x, generator, 1) * (x.shape[-1] // 2))
    return torch.cat((x[..., :start], x[..., start:] * _DOWN), -1)


def _peaked(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    rows = _uniform(x, generator, *x.shape[:-1], 1)
    chosen = _one_place(x, generator) & ((rows < 0.25) | (rows == rows.amin()))
    return torch.where(chosen, _OUTLIER * x.abs().amax(), x)


def _shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    size = x.square().mean(-1, keepdim=True).sqrt() if x.ndim > 1 else x.square().mean().sqrt()
    return x + (2 * _rows(x, generator) - 1) * _SHIFT * size


def _tiny(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.where(_uniform(x, generator) < min(1 / 8, 8 / x.shape[-1]), x * 2.0**-136, x)


KINDS = (
    ContentKind("sorted", lambda x, generator: x.sort(-1).values, equal=True),
    ContentKind("sorted downwards", lambda x, generator: x.sort(-1, descending=True).values, equal=True),
    ContentKind("of four values in a row", _tied, equal=True),
    ContentKind(
        "repeated",
        lambda x, generator: x[..., torch.arange(x.shape[-1], device=x.device) % -(-x.shape[-1] // 8)],
        equal=True,
    ),
    ContentKind("clustered", lambda x, generator: _tied(x, generator) + x * _DOWN, equal=True),
    ContentKind(
        "half nearly zero", lambda x, generator: torch.where(_uniform(x, generator) < 0.5, x, x * _DOWN), equal=True
    ),
    ContentKind("nearly one hot", lambda x, generator: torch.where(_one_place(x, generator), x, x * _DOWN), equal=True),
    ContentKind("half zeros", lambda x, generator: x * (_uniform(x, generator) < 0.5), equal=True),
    ContentKind("rows of mixed scales", lambda x, generator: x * torch.exp2(-_FAR * _rows(x, generator)), timed=True),
    ContentKind("large at the start", _faded, equal=True),
    ContentKind("with denormal numbers", _tiny, equal=True),
    ContentKind("with outliers", _peaked, grows=True, timed=True),
    ContentKind("rows shifted", _shifted, grows=True, equal=True),
    ContentKind(
        "of both signs", lambda x, generator: torch.where(_uniform(x, generator) < 0.5, -x, x), grows=True, timed=True
    ),
)
"""Sound for every right kernel: results on them have bounds like those on drawn contents."""
DENORMAL, SIGNS = "with denormal numbers", "of both signs"


def changeable_inputs(data: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> list[int]:
    """Return the indices of the inputs that may be changed: floats with many values that depend on the seed. other:
    drawn from another seed."""
    return [
        index
        for index, (tensor, theirs) in enumerate(zip(data, other, strict=True))
        if tensor.is_floating_point()
        and tensor.shape == theirs.shape
        and tensor.ndim
        and tensor.shape[-1] > 1
        and len(set(tensor.reshape(-1)[:_LOOKED_AT].tolist())) > min(_MANY, tensor.numel() - 1)
        and not torch.equal(tensor.double(), theirs.double())
    ]


def change_contents(tensor: torch.Tensor, kind: ContentKind, seed: int) -> torch.Tensor | None:
    """Return an input of that kind, with the strides of the drawn one; None if the kind changes nothing."""
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    limit = torch.finfo(tensor.dtype).max / 2
    result = torch.empty_like(tensor)  # keeps the strides of dense tensors
    if result.stride() != tensor.stride():
        return None
    result.copy_(kind.change(wide, generator).clamp(-limit, limit))
    if kind.name == SIGNS and bool((wide < 0).any()):
        return None
    return None if torch.equal(result.double(), tensor.double()) else result


def like(
    met: Sequence[Mapping[str, Any]], shapes: Shapes, seed: int, device: str = "cpu", file: str | None = None
) -> tuple[torch.Tensor, ...]:
    """Return a case's tensors, drawn like recorded ones.

    met: each tensor's facts (`about`), only `dtype` for an output; if not contiguous, the `order` of its dimensions in
    memory, or its `stride`. file: the path of reference.py, beside which the inputs of a few calls may be stored;
    without these (a worker on another machine) inputs are drawn.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    data = []
    for about, shape in zip(met, shapes, strict=True):
        kind = getattr(torch, about["dtype"])
        order = about.get("order", range(len(shape)))
        if "stride" in about:
            tensor = torch.empty_strided(tuple(shape), about["stride"], dtype=kind, device=device)
        else:
            lies = torch.empty([shape[axis] for axis in order], dtype=kind, device=device)
            tensor = lies.permute([list(order).index(axis) for axis in range(len(shape))])
        data.append(tensor.copy_(_drawn(about, shape, generator)) if "low" in about else tensor.zero_())
    calls = _load(Path(file).with_name(KEPT)).get(name(shapes), []) if file else []
    if len(calls) > 1 or (calls and seed % 2):  # beside a single call others are drawn: no kernel may keep its answer
        for tensor, own in zip(data, calls[seed % len(calls)], strict=False):
            tensor.copy_(own)
    return tuple(data)


def describe_contents(tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return the facts from which tensors of one type can be drawn again. Raises ValueError if they cannot be."""
    whole = torch.cat([tensor.detach().reshape(-1).cpu() for tensor in tensors])
    wide = whole.double()
    if not whole.numel() or not wide.isfinite().all():
        raise ValueError("is empty or not finite everywhere")
    facts: dict[str, Any] = {"dtype": str(whole.dtype).removeprefix("torch.")}
    if whole.dtype.is_floating_point:
        values = wide[wide != 0] if 0 < (wide == 0).double().mean() < 1 else wide
        figures = {"mean": values.mean(), "std": values.std(correction=0), "low": values.min(), "high": values.max()}
        facts |= {key: float(f"{float(value):.4g}") for key, value in figures.items()}
        facts["zeros"] = float(f"{1 - values.numel() / wide.numel():.4g}")
    elif whole.dtype is torch.bool:
        facts |= {"low": 0, "high": 1, "mean": float(f"{float(wide.mean()):.4g}")}
    else:
        facts |= {"low": int(whole.min()), "high": int(whole.max())}
    return facts


def describe_strides(stride: Sequence[int], shape: Sequence[int]) -> dict[str, Any]:
    """Return a tensor's memory layout for `like`; empty if contiguous."""
    if torch.empty(tuple(shape), device="meta").stride() == tuple(stride):
        return {}
    order = sorted(range(len(shape)), key=lambda axis: (-stride[axis], axis))
    dense = torch.empty([shape[axis] for axis in order], device="meta").stride()
    return {"order": order} if dense == tuple(stride[axis] for axis in order) else {"stride": list(stride)}


def common_strides(layouts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[str, Any]:
    """Return the memory layout of one tensor in all of its cases, given as (strides, shape), for `like`. The stride
    of a dimension of size 1 counts nowhere. Raises ValueError if the layouts differ."""
    stride, shape = max(layouts, key=lambda layout: sum(size > 1 for size in layout[1]))
    described = describe_strides(stride, shape)
    order = described.get("order", range(len(shape)))
    for stride, shape in layouts:
        dense = dict(zip(order, torch.empty([shape[axis] for axis in order], device="meta").stride(), strict=True))
        steps = described.get("stride", dense)
        if any(size > 1 and stride[axis] != steps[axis] for axis, size in enumerate(shape)):
            raise ValueError("is called with tensors that lie differently in memory")
    return described


def name(shapes: Shapes) -> str:
    """Return the key of a case among the recorded inputs."""
    return str([list(shape) for shape in shapes])


def _drawn(about: Mapping[str, Any], shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    low, high = about["low"], about["high"]
    kind: torch.dtype = getattr(torch, about["dtype"])
    if kind is torch.bool:
        return torch.rand(tuple(shape), generator=generator, device=generator.device).lt(about["mean"])
    if not kind.is_floating_point:
        return torch.randint(low, high + 1, tuple(shape), generator=generator, device=generator.device)
    wide = torch.float64 if kind is torch.float64 else torch.float32
    drawn = torch.randn(tuple(shape), generator=generator, device=generator.device, dtype=wide)
    if low == high:
        drawn = drawn.mul_(max(abs(low) * _SPREAD, _TINY))
        return (drawn.abs_().mul_(1 if low > 0 else -1) if low else drawn).add_(low)
    drawn = drawn.mul_(about["std"]).add_(about["mean"]).clamp_(low, high)
    if about["zeros"]:
        drawn[torch.rand(drawn.shape, generator=generator, device=generator.device) < about["zeros"]] = 0
    return drawn


@functools.cache
def _load(file: Path) -> "dict[str, list[list[torch.Tensor]]]":
    return torch.load(file, weights_only=True) if file.is_file() else {}
