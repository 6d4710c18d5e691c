"""The derived tolerance: c1·eps(accumulate)·sqrt(terms)·magnitude + u_out·|expected|, element by element.

u_out is half of the output type's eps, what one correct rounding costs; half of its smallest subnormal is added for the
same reason. NaN and infinity must be where the oracle has them. Outputs of more than a few million elements are
compared at a secret sample of them, which the evidence states.
"""

import ctypes
import math
import secrets
from dataclasses import dataclass
from typing import Any

import torch

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_MOST = 1 << 22
_SAMPLE = 1 << 20


@dataclass(frozen=True)
class Expected:
    """One output: the oracle's values with their bounds, flat, all of them or a sample."""

    value: torch.Tensor
    bound: torch.Tensor
    sample: torch.Tensor | None
    shape: tuple[int, ...]
    special: bool
    """Whether there is a NaN or an infinity in it."""


@dataclass(frozen=True)
class Finding:
    """How an output compares."""

    right: bool
    worst: float
    """The largest error, as a share of its bound."""
    detail: dict[str, Any]
    """The first bad element, where there is one."""


def expected(row: dict[str, Any], out: torch.Tensor, check: dict[str, Any]) -> Expected:
    """What the oracle's row means for an output of `out`'s type and shape."""
    value = row["expected"].double().reshape(-1)
    magnitude = row["magnitude"].double().reshape(-1)
    sample = None
    if value.numel() > _MOST:
        secret = torch.Generator().manual_seed(secrets.randbits(62))
        sample = torch.randint(value.numel(), (_SAMPLE,), generator=secret).sort().values
        value, magnitude = value[sample], magnitude[sample]
    growth = check["c1"] * _eps(check["accumulate"]) * math.sqrt(row["terms"])
    bound = growth * magnitude
    if out.dtype.is_floating_point:
        limits = torch.finfo(out.dtype)
        bound += value.abs() * (limits.eps / 2) + limits.tiny * limits.eps / 2
        overflow = value.abs() >= limits.max * (1 + limits.eps / 4)
        value = torch.where(overflow, value.sign() * math.inf, value) if overflow.any() else value
    special = not bool(value.isfinite().all())
    return Expected(value, bound, sample, tuple(out.shape), special)


def compare(want: Expected, got: torch.Tensor) -> Finding:
    """Every element of `got` (or of the sample) against its bound."""
    flat = got.reshape(-1)
    flat = (flat if want.sample is None else flat[want.sample]).double()
    error = (flat - want.value).abs()
    if want.special:
        same = (flat == want.value) | (flat.isnan() & want.value.isnan())
        error = torch.where(same, 0.0, torch.where(want.value.isfinite(), error, math.inf))
    bad = ~(error <= want.bound)
    if not bool(bad.any()):
        ratio = torch.where(error > 0, error / want.bound, 0.0)
        return Finding(True, float(ratio.max()) if ratio.numel() else 0.0, {})
    return Finding(False, math.inf, _first(want, flat, bad))


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors of one size hold the same bytes. Many times faster than `torch.equal`."""
    return not _memcmp(one.data_ptr(), other.data_ptr(), one.nbytes)


def number(value: float) -> float | str:
    """As JSON may hold it."""
    return value if math.isfinite(value) else str(value)


def _first(want: Expected, flat: torch.Tensor, bad: torch.Tensor) -> dict[str, Any]:
    place = int(bad.nonzero()[0])
    position = place if want.sample is None else int(want.sample[place])
    index = [int(i) for i in torch.unravel_index(torch.tensor(position), want.shape)]
    return {
        "index": index,
        "got": number(float(flat[place])),
        "expected": number(float(want.value[place])),
        "bound": number(float(want.bound[place])),
        "bad": int(bad.sum()),
        "of": bad.numel(),
    }


def _eps(dtype: str) -> float:
    return float(torch.finfo(getattr(torch, dtype)).eps)
