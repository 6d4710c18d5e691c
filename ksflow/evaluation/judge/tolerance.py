"""The derived tolerance: c1·eps(accumulate)·sqrt(terms)·magnitude + u_out·|expected|, element by element.

u_out is half of the output type's eps, the cost of one correct rounding; half of the smallest subnormal is added for
the same reason. NaN and infinity must be where the oracle has them. Integers and booleans must be equal, booleans by
their bytes, of which only 0 and 1 are valid. A complex element is two floats, each with the element's bound. The bound
is kept as the lowest and the highest value allowed, rounded inwards to a type that holds every output value: comparing
with them decides exactly as fp64 would.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.bounds import ALLOWED, portion
from ksflow.evaluation.judge.elements import number, parts, rms, to_comparable

AT_RANDOM = "draws at random: its outputs for the same inputs differ between calls; seed its generator"
ALL = 1 << 22
"""Outputs of up to so many elements can be compared as a whole; of larger ones a sample of this size is compared."""
_STEPS = 8.0
"""Roundings of the number format that an element may be off by, where only the reference says what is right."""
_LEAST, _LEAST_64 = 1e-4, 2e-13
"""Sums in another order differ by more than their format's step: some 800 of float32's, and of float64's."""
_APART, _OTHERS = 1e-3, 16.0
"""A function that is off by more than this share in float64 computes something else there. Elements of which its own
answer is better may be off as its worst one, and by so many times its usual error at most."""
_SMALL = 1e-30
_RUN = 64
_ENOUGH = 1 << 16


_NAMES = """float64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    complex32 complex64 complex128 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"""
COMPARED = frozenset(getattr(torch, name) for name in _NAMES.split() if hasattr(torch, name))
"""Types that the judge can compare."""


@dataclass(frozen=True)
class Expected:
    """Allowed values of one output, flat: of each element (each part of a complex one), or of a secret sample."""

    value: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    sample: torch.Tensor | None
    """Indices of the runs of 64 elements to compare, beside the last `numel % 64` elements; None for all elements."""
    shape: tuple[int, ...]
    special: bool  # whether a NaN is expected
    group: torch.Tensor | None = None
    """Index of the group with which each compared element shares a factor, if the oracle's row has `common`."""
    common: torch.Tensor | None = None  # how far each group's factor may be from 1, in fp64

    @property
    def nbytes(self) -> int:
        held = (self.value, self.low, self.high, self.sample, self.group, self.common)
        return sum(tensor.nbytes for tensor in held if tensor is not None)


def by_format(
    value: torch.Tensor, rtol: float | None = None, atol: float | None = None, c1: float = 1.0
) -> dict[str, Any]:
    """The oracle's row of a reference's answer: an element may be off by what its number format allows, or by as much
    as is said, and absolutely by no more than the answer's own size allows. c1: that of the problem's check."""
    if not parts(value).is_floating_point():
        return {"expected": value, "magnitude": torch.zeros((), dtype=torch.float64), "terms": 1}
    kind = parts(value).dtype
    usual = max(_STEPS * torch.finfo(kind).eps, _LEAST_64 if kind is torch.float64 else _LEAST)
    rtol, atol = (usual if given is None else given for given in (rtol, atol))
    room = min(atol, max(atol, rtol) * rms(value)) + _SMALL
    return {
        "expected": value,
        "magnitude": torch.tensor(room / c1, dtype=torch.float64),
        "relative": rtol,
        "terms": 1,
        "eps": 1.0,
    }


def by_function(
    function: Callable[[tuple[torch.Tensor, ...]], Any], data: tuple[torch.Tensor, ...], changed: Sequence[int]
) -> list[dict[str, Any]]:
    """The oracle's rows of a function's outputs, those at the places `changed` first: what it computes in float64,
    within what the number format allows and its own answer is off. Where it does not compute the same in float64, or
    answers with integers, its own answer.
    """
    wide = tuple(one.to(torch.float64 if one.is_floating_point() else one.dtype, copy=True) for one in data)
    own = _answers(function, data, changed)
    rows = [by_format(one) for one in own]
    with catch_foreign():  # a function for one type
        for row, mine, exact in zip(rows, own, _answers(function, wide, changed), strict=True):
            if mine.is_floating_point() and exact.dtype is torch.float64 and exact.shape == mine.shape:
                off, usual = (mine.double() - exact).abs().nan_to_num(posinf=0.0), rms(mine, exact)
                same = torch.equal(mine.isfinite(), exact.isfinite())
                if same and usual <= max(_APART, _STEPS * torch.finfo(mine.dtype).eps) * rms(mine):
                    row |= {
                        "expected": exact,
                        "magnitude": row["magnitude"] + off.clamp(min=min(_OTHERS * usual, float(off.max()))),
                    }
    return rows


def _answers(
    function: Callable[..., Any], data: tuple[torch.Tensor, ...], changed: Sequence[int]
) -> list[torch.Tensor]:
    answer = function(data)
    return [*(data[place] for place in changed), *(answer if isinstance(answer, tuple) else (answer,))]


def expected(
    row: dict[str, Any],
    out: torch.Tensor,
    check: dict[str, Any],
    most: int = ALL,
    before: torch.Tensor | None = None,
) -> Expected:
    """Return the allowed values of an output of `out`'s type and shape, at `most` elements of it.

    before: the initial contents of an output that is changed in place; half of a sample is drawn from what changes.

    Optional keys of a row, beside those of `bounds`: `relative` adds so many times an element's size to its bound;
    `eps` replaces the accumulator's; `spread`, of a sum of products the root of the sum of squares, bounds the error of
    the matrix unit and of operands in `check.allow`'s precision; `common` allows elements to be off by one shared
    factor beside their own bounds. `common` is a relative error in the magnitude's unit and has the output's shape with
    size 1 along the dimensions whose elements share the factor. Raises ValueError if an output of this type cannot hold
    the expected value.
    """
    if out.is_complex():
        row = _in_parts(row, check)
    out, value, growth = to_comparable(out), row["expected"].reshape(-1), _growth(row, check)
    magnitude = _magnitude(row, check, value)
    sample = None
    if value.numel() > min(most, ALL):
        sample = _sample(value, min(most, ALL), before).to(value.device)
        value = _pick(value, sample)
        magnitude = _pick(magnitude, sample) if magnitude.numel() > 1 else magnitude
    if not out.dtype.is_floating_point:
        whole = parts(value).to(torch.int64)
        if value.is_complex() or not torch.equal(whole.to(value.dtype), value):
            raise ValueError(f"the oracle's value of an output of {out.dtype} is no integer: round it there")
        return Expected(whole, whole, whole, sample, tuple(out.shape), False)
    group = None if (common := row.get("common")) is None else _groups(common, out.shape, sample)
    kind = torch.float64 if out.dtype == torch.float64 else torch.float32
    middle, low, high = (torch.empty(value.numel(), dtype=kind, device=value.device) for _ in range(3))
    special, relative = False, float(row.get("relative", 0.0))
    chunk = portion(value)
    for start in range(0, value.numel(), chunk):
        part = slice(start, start + chunk)
        slack = (magnitude[part] if magnitude.numel() > 1 else magnitude).double() * growth
        exact = value[part].double()
        if relative:
            slack = slack + relative * exact.abs().nan_to_num(posinf=0.0)
        exact, bound = _bounded(exact, slack, out.dtype)
        middle[part] = exact
        low[part], high[part] = _inwards(exact - bound, kind, up=True), _inwards(exact + bound, kind, up=False)
        special |= bool(exact.isnan().any())
    shared = None if common is None else common.reshape(-1).double() * growth
    return Expected(middle, low, high, sample, tuple(out.shape), special, group, shared)


def first_error(want: Expected, got: torch.Tensor) -> dict[str, Any]:
    """Return the first element of `got` outside its bound, and how many are; empty if none is."""
    flat = _pick(to_comparable(got).reshape(-1), want.sample).to(want.low.dtype)
    own = _own(want, flat)
    good = (own >= want.low) & (own <= want.high)
    if want.special:
        good |= flat.isnan() & want.value.isnan()
    if bool(good.all()):
        return {}
    bad = ~good
    index = int(bad.nonzero()[0])
    at = index
    if want.sample is not None:  # index in the whole output
        sampled = want.sample.numel() * _RUN
        after = math.prod(want.shape) // _RUN * _RUN + index - sampled
        at = after if index >= sampled else int(want.sample[index // _RUN]) * _RUN + index % _RUN
    return {
        "index": [int(i) for i in torch.unravel_index(torch.tensor(at), want.shape)],
        "got": number(float(flat[index])),
        "expected": number(float(want.value[index])),
        "bound": number(float(want.high[index] - want.value[index])),
        "bad": int(bad.sum()),
        "of": bad.numel(),
    }


def worst_error(want: Expected, got: torch.Tensor) -> float:
    """Return the largest error of a right output (its first 65,536 elements), as a share of its bound."""
    flat = _own(want, _pick(to_comparable(got).reshape(-1), want.sample).to(want.low.dtype))
    if flat.numel() > _ENOUGH:
        want = replace(want, value=want.value[:_ENOUGH], low=want.low[:_ENOUGH], high=want.high[:_ENOUGH])
        flat = flat[:_ENOUGH]
    slack = torch.where(flat > want.value, want.high - want.value, want.value - want.low).double()
    share = (flat - want.value).abs().double() / slack
    share = share[share.isfinite()]
    return min(float(share.max()), 1.0) if share.numel() else 0.0


def _in_parts(row: dict[str, Any], check: dict[str, Any]) -> dict[str, Any]:
    """Return a complex row as one of pairs of floats; `relative` refers to the complex element's absolute value."""
    value = row["expected"].to(torch.complex128)
    growth = _growth(row, check)
    wider = value.abs().nan_to_num(posinf=0.0) * (float(row.get("relative", 0.0)) / growth)
    magnitude = torch.as_tensor(row["magnitude"], device=value.device) + wider
    both = {name: row[name].unsqueeze(-1).expand(*value.shape, 2) for name in ("spread",) if name in row}
    both |= {name: row[name] for name in ("eps",) if name in row}
    magnitude = magnitude.unsqueeze(-1).expand(*value.shape, 2)
    return {"expected": torch.view_as_real(value), "magnitude": magnitude, "terms": row["terms"], **both}


def _sample(value: torch.Tensor, count: int, before: torch.Tensor | None) -> torch.Tensor:
    """Draw secret runs, half of them from those with a change since `before`; with the first and the last run."""
    secret = torch.Generator().manual_seed(secrets.randbits(62))
    total = value.numel() // _RUN
    runs = torch.randint(total, (count // _RUN,), generator=secret)
    if before is not None:
        changes = value[: total * _RUN] != to_comparable(before).reshape(-1)[: total * _RUN].to(value)
        among = changes.view(-1, _RUN).any(1).nonzero().view(-1).cpu()
        half = runs.numel() // 2 if among.numel() else 0
        runs[:half] = among[torch.randint(max(among.numel(), 1), (half,), generator=secret)]
    runs[0], runs[-1] = 0, total - 1
    return runs.sort().values


def _pick(flat: torch.Tensor, sample: torch.Tensor | None) -> torch.Tensor:
    if sample is None:
        return flat
    whole = flat.numel() // _RUN * _RUN
    runs = flat[:whole].view(-1, _RUN).index_select(0, sample).view(-1)
    return runs if whole == flat.numel() else torch.cat((runs, flat[whole:]))


def _groups(common: torch.Tensor, shape: torch.Size, sample: torch.Tensor | None) -> torch.Tensor:
    """Return, for each compared element, the index of its group in `common`."""
    total = math.prod(shape)
    left = torch.arange(total, device=common.device) if sample is None else _places(total, sample)
    index = torch.zeros_like(left)
    step = 1
    for size, groups in zip(reversed(shape), reversed(common.shape), strict=True):
        if groups > 1:
            index += left % size * step
            step *= size
        left = left // size
    return index


def _places(total: int, sample: torch.Tensor) -> torch.Tensor:
    """Return the indices in the whole output of the elements that `_pick` returns."""
    runs = sample.unsqueeze(1) * _RUN + torch.arange(_RUN, device=sample.device)
    return torch.cat((runs.view(-1), torch.arange(total // _RUN * _RUN, total, device=sample.device)))


def _own(want: Expected, flat: torch.Tensor) -> torch.Tensor:
    """Return the elements divided by their group's common factor, as far as that factor is allowed."""
    if want.group is None or want.common is None:
        return flat
    wide = flat.double()
    got, exact = (torch.zeros_like(want.common).index_add_(0, want.group, each) for each in (wide, want.value.double()))
    off = (got / exact - 1).nan_to_num(0.0, 0.0, 0.0)
    return wide / (1 + off.clamp(-want.common, want.common))[want.group]


def _bounded(value: torch.Tensor, slack: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values as the output type can hold them (overflow is infinity), and their bounds."""
    limits = torch.finfo(dtype)
    size = value.abs()
    bound = slack + size * (limits.eps / 2) + limits.tiny * limits.eps / 2
    if size.numel() and not bool(size.max() < limits.max):  # some overflow or are not finite
        overflow = size >= limits.max * (1 + limits.eps / 4)
        value = torch.where(overflow, value.sign() * math.inf, value)
        bound = torch.where(value.isfinite(), bound, 0.0)
    return value, bound


def _inwards(edge: torch.Tensor, kind: torch.dtype, up: bool) -> torch.Tensor:
    """Return `edge` in a narrower type, rounded up or down so that the bound never widens."""
    if kind == edge.dtype:
        return edge
    narrow = edge.to(kind)
    out = (narrow.double() < edge) if up else (narrow.double() > edge)
    bits = narrow.add_(0.0).view(torch.int32)  # -0 becomes 0
    step = torch.where(narrow < 0 if up else narrow > 0, -1, 1).to(torch.int32)
    return (bits + step * out).view(kind)


def _magnitude(row: dict[str, Any], check: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    """Return a row's magnitude, flat, with the errors of the matrix unit and of operands in lower precision."""
    magnitude = torch.as_tensor(row["magnitude"], device=value.device).reshape(-1)
    unit, allowed = float(check.get("unit", 0.0)), 2 * ALLOWED[check.get("allow", "")]
    spread: torch.Tensor | None = row.get("spread")
    if spread is None or not (unit or allowed):
        return magnitude
    errors = spread.to(value.device).reshape(-1) * (unit + allowed) + value.abs().nan_to_num(posinf=0.0) * allowed
    return magnitude + errors / _growth(row, check)


def _growth(row: dict[str, Any], check: dict[str, Any]) -> float:
    eps = row.get("eps") or torch.finfo(getattr(torch, check["accumulate"])).eps
    return float(check["c1"] * eps * math.sqrt(row["terms"]))
