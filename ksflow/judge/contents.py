"""Contents like those that a model's modules were called with: for problems that `model profile` writes."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

KEPT = "met.pt"
"""Beside a reference: a few calls' own contents."""
_SPREAD, _TINY = 0.1, 0.02
"""What was the same everywhere varies by a tenth, and by at least so much, with its sign: a kernel is to read it."""

Shapes = Sequence[Sequence[int]]


def like(
    met: Sequence[Mapping[str, Any]], shapes: Shapes, seed: int, device: str = "cpu", file: str | None = None
) -> tuple[torch.Tensor, ...]:
    """A case's tensors. met: what was in each of them (`about`), of an output its `dtype` alone; where one is not
    contiguous, the `order` of its dimensions in memory, or its `stride`. file: the reference's, beside which a few
    calls' own contents are; without them, as with a worker on another machine, contents are drawn as for other cases.
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
    for tensor, own in zip(data, calls[seed % len(calls)] if calls else (), strict=False):
        tensor.copy_(own)
    return tuple(data)


def about(tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """What was in tensors of one type. ValueError where that cannot be drawn again."""
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


def lies(stride: Sequence[int], shape: Sequence[int]) -> dict[str, Any]:
    """How a tensor lies in memory, for `like`; nothing where it is contiguous."""
    if torch.empty(tuple(shape), device="meta").stride() == tuple(stride):
        return {}
    order = sorted(range(len(shape)), key=lambda axis: (-stride[axis], axis))
    dense = torch.empty([shape[axis] for axis in order], device="meta").stride()
    return {"order": order} if dense == tuple(stride[axis] for axis in order) else {"stride": list(stride)}


def name(shapes: Shapes) -> str:
    """Of a case among what is kept."""
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
