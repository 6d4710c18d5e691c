"""Oracle rows for problem authors: the exact answer in fp64, and how far honest arithmetic may be from it.

A row is `{"expected", "magnitude", "terms"}`. The judge accepts `got` where, element by element,

    |got - expected| <= c1·eps(accumulate)·sqrt(terms)·magnitude + u_out·|expected|

Where errors have a part that is one factor for many elements, a row says so by `common`: that factor is then found and
bounded by itself, and each element's own error by the magnitude alone (see `softmax`). Those bounds are made
with `c1` and `accumulate` from problem.yaml and u_out half a unit of the output's type. The derivations use the
standard model of rounding, fl(x op y) = (x op y)(1 + d) with |d| <= eps/2, and the fact that n such factors multiply to
1 + D with |D| <= n·eps/2 at worst and about sqrt(n)·eps/2 when the errors have random signs (N. J. Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., sections 2.2, 2.8 and 3.1). c1 is the room between that estimate and honest
kernels: split sums, fast-math reassociation, a reciprocal in place of a division.

Outputs of integers and truth values are compared exactly, whatever the magnitude. Not covered: results so small that
float32 products underflow, and answers that are not unique (see `property_check` in problems/README.md).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ksflow.judge.roundings import Rounded, Units

Row = dict[str, Any]

_CHUNK, _DEVICE_CHUNK = 1 << 15, 1 << 24
"""Elements that stay in a core's cache with their temporaries; on a GPU, so many that launches cost nothing."""
_PREFIXES = 4
"""How many prefixes of a sum of products are looked at."""
_UNIT, _GROWTH, _CUT_OFF = 8.0, 4.0, 0.2
"""The c1 that magnitudes are made for; what sums may err by, in eps·(sqrt(K) + 1)·H; what a matrix unit of a GPU adds
to it, in eps·K·H (H200, float32 sums of TF32, bf16 and fp16 operands: at most 0.055, of three terms of TF32 0.16)."""
ALLOWED = {"": 0.0, "tf32": 2.0**-10, "fp16": 2.0**-10, "bf16": 2.0**-7}
"""`check.allow` -> the eps that operands of products may be rounded to, or cut to."""
_TF32, _APART = 2.0**-10, 0.18
"""TF32's eps; what a quarter of rounded operands' errors are, in their eps times H."""
_NEXT = {torch.float16: 2.0**-7, **dict.fromkeys((torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2), 2.0**-3)}
"""The eps of the next narrower type that operands could be rounded to."""
_LONG = 1 << 14
"""Terms of a sum that is bounded by what is in it."""
_LONG_CHUNK = 1 << 22
_LANES = (1024, 64, 8, 2)
_EXPONENT = 0x7F800000
"""Bits of a float32."""
_VANISHES = 800.0
"""e to the minus this is 0 in fp64."""
_RUNS, _ROW = 4, 16
"""Of a function with roundings at random; elements from which on a row is compared with itself."""
_PICKS: dict[str, Callable[..., torch.Tensor]] = {
    "max": torch.amax,
    "min": torch.amin,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
}


def matmul(a: torch.Tensor, b: torch.Tensor, spread: bool = True) -> Row:
    """a @ b, batched or not. Operands in any type; what a kernel is given must be exact in them.

    Roundings of a dot product of K terms are independent, so their errors add up as squares: each addition errs by at
    most half a unit of the partial sum at hand (Higham, section 3.1). Partial sums in memory's order are as large as
    the largest of 4 prefixes, in a random order as the root of the terms' squares. With H, the larger of the two, the
    bound is 4·eps·(sqrt(K) + 1)·H for c1 = 8. Rounded operands are off by a share of the same root, which does not grow
    with K: what float32 kernels err by and what TF32 operands err by stay apart up to K = 65,536 (docs/trust.md has
    both). Where all terms have one sign, a plain loop errs as much as TF32 operands do from K = 4,096 on.

    On a GPU a matrix unit's accumulator cuts off instead of rounding, which adds up to 0.2·eps·K·H. That is granted as
    long as operands rounded to the next narrower type (of float32: TF32) stay apart. Of integers the product is exact.
    The row's `spread`, sqrt(Σ(a_i b_i)²), is for `check.units` and `check.allow` of problem.yaml; spread asks for what
    is always given.
    """
    _real("matmul", a, b)
    if not (a.dtype.is_floating_point or b.dtype.is_floating_point):
        return exact(a.long() @ b.long())
    k, expected = max(a.shape[-1], 1), a.double() @ b.double()
    largest, squares = (one.view(expected.shape) for one in _partial_sums(a, b))
    return sums_of_products(expected, largest, squares, k, a, b)


def sums_of_products(
    expected: torch.Tensor, largest: torch.Tensor, squares: torch.Tensor, terms: int, *operands: torch.Tensor
) -> Row:
    """Sums of `terms` products each, as `matmul` has them, for convolutions and the like.

    largest: the largest of some partial sums, without signs. squares: the root of the sum of the products' squares.
    operands: what is multiplied, of which the type and the device count.
    """
    growth = _growth(terms, *operands) / _UNIT / math.sqrt(terms)
    magnitude = largest.maximum(squares).maximum(expected.abs()) * growth
    return {"expected": expected, "magnitude": magnitude, "terms": terms, "spread": squares}


def reduction(x: torch.Tensor, dim: int | tuple[int, ...], kind: str = "sum", keepdim: bool = False) -> Row:
    """`sum`, `mean`, `max`, `min`, `argmax` or `argmin` of x along `dim` (argmax and argmin: one dimension).

    A sum of n terms errs like a dot product with ones. Of more than 16,384 terms, what its partial sums can be is
    looked at more closely (`long_sums`), and one sign of all terms leaves less room. A mean divides by n, and its one
    rounding more is below what n = 1 is given already. The bounds count on float32 (or wider) sums. A sum of integers
    is exact. The largest, the smallest and their places are picked, not computed: exact. Of equal elements the first
    counts; where another is as good, use `property_check`.
    """
    _real("reduction", x)
    if kind in _PICKS:
        return exact(_PICKS[kind](x, dim, keepdim=keepdim))
    if kind not in ("sum", "mean"):
        raise ValueError(f"bounds.reduction: kind {kind!r} is not one of sum, mean, {', '.join(_PICKS)}")
    if kind == "sum" and not x.dtype.is_floating_point:
        return exact(x.sum(dim, keepdim=keepdim))
    wide = x.double()
    expected = wide.sum(dim, keepdim=keepdim)
    terms = max(x.numel() // max(expected.numel(), 1), 1)
    share = terms if kind == "mean" else 1
    magnitude = long_sums(x, dim).view_as(expected) if x.numel() else torch.zeros_like(expected)
    if terms > _LONG:
        magnitude = magnitude.fmin(wide.abs().sum(dim, keepdim=keepdim))
    return {"expected": expected / share, "magnitude": magnitude / share, "terms": terms}


def long_sums(x: torch.Tensor, dim: int | tuple[int, ...]) -> torch.Tensor:
    """The magnitude, for c1 = 8 and float32, that the rounding errors of long sums of x along `dim` have.

    Each addition rounds by at most half a unit of the partial sum at hand, so what counts is how large partial sums
    become, not how large the terms are together: Σ|x|·sqrt(n) stands for it only while all terms have one sign, and is
    64 standard deviations even then. Up to 16,384 terms it is 4·eps·(sqrt(n) + 1)·H and the last summand, with H as
    below. Beyond that, three summands, for sums in any order that kernels use:

    - c1·eps·Σ|x|: sums by pairs, by blocks, by atomic additions of blocks, whose errors hardly grow with n;
    - half of eps·sqrt(n)·H for one accumulator, or a few that take turns. H is the root of the squares of the largest
      partial sum in memory's order, of the terms' root of the sum of squares (partial sums in random order) and of what
      2 to 1024 accumulators end with. A term's rounding has a standard deviation of 0.22 eps times the partial sum, so
      one accumulator has 0.13·eps·sqrt(n)·|Σx| where all terms have one sign;
    - twice the error that one accumulator in memory's order makes: its roundings may all go one way. It adds each term
      rounded to a unit of the partial sum, which can be computed for all terms at once.
    """
    dims = [dim] if isinstance(dim, int) else list(dim)
    last = x.movedim(dims, list(range(-len(dims), 0)))
    n = math.prod(last.shape[x.ndim - len(dims) :])
    rows = last.reshape(-1, n).float()
    count = max(_LONG_CHUNK // n, 1)
    return torch.cat([_long_sums(rows[start : start + count]) for start in range(0, len(rows), count)])


def softmax(x: torch.Tensor, dim: int = -1, c1: float = 4.0, accumulate: torch.dtype = torch.float32) -> Row:
    """Softmax of x along `dim`. c1 and accumulate: problem.yaml's, which the judge multiplies with.

    With d = x - max, y = e^d / S and everything positive, a kernel's relative error is made of an element's own: eps
    for exp and the division, eps·|d| because rounding d shifts the exponent; and of what S is off by, which all
    elements of a row share: the same two averaged over the row (eps·Σ y|d|), and eps·sqrt(n) from adding up S. Only
    that last part grows with the row, and it says nothing of how far elements may be from each other: it bounds the
    row's factor (`common`), divided by c1, which is meant for the rest. The judge takes the factor from the row's sum,
    which has the average of the elements' own errors in it, so that average is granted to each of them once more.

    The square root holds while the errors have random signs. Terms around half a unit of S and below are swallowed one
    after the other by a plain sum, all in one direction: each loses at most itself or half a unit, and these losses add
    up. The last summand lets values below the smallest normal number be flushed to zero. P. Blanchard, D. J. Higham,
    N. J. Higham, Accurately computing the log-sum-exp and softmax functions (IMA J. Numer. Anal., 2021) derive the
    worst case.

    Of their bounds, on rows of 65 to 262,144 values of scales from 0.01 to 30 (float32, 2026-11-25; `test_bounds`):
    PyTorch, sums in one accumulator in either order, online softmax by blocks and by elements, a reciprocal in place of
    the division take 3 to 13 %; exp(x - log S) 3 to 24 %; exponentials off by up to 2 units at random, or 2^(x·log2 e)
    with a rounded product, 13 to 41 %. An exponential by a polynomial of third degree, off by 7.7e-5, is rejected in
    each of them.
    """
    _real("softmax", x)
    last = x.movedim(dim, -1)
    flat = last.reshape(-1, last.shape[-1])
    expected = torch.empty(flat.shape, dtype=torch.float64, device=x.device)
    magnitude = torch.empty_like(expected)
    common = torch.zeros(len(flat), dtype=torch.float64, device=x.device)
    count = max(portion(x) // max(flat.shape[1], 1), 1)
    for start in range(0, len(flat) if flat.shape[1] else 0, count):
        rows = slice(start, start + count)
        common[rows] = _softmax_rows(flat[rows], expected[rows], magnitude[rows], c1, torch.finfo(accumulate))
    back = [tensor.view(last.shape).movedim(-1, dim) for tensor in (expected, magnitude)]
    shared = common.view(*last.shape[:-1], 1).movedim(-1, dim)
    return {"expected": back[0], "magnitude": back[1], "common": shared, "terms": 1}


def elementwise(
    value: torch.Tensor, *contributions: torch.Tensor | float, condition: torch.Tensor | float = 0.0
) -> Row:
    """A value per element, from a few operations. value: the exact result, in fp64.

    Each rounded intermediate t moves the result by eps/2·|t·∂value/∂t| (first order: Higham, section 1.6): those
    products are the `contributions`, their signs do not matter. For a + b they are a and b, for a·b + c they are a·b
    and c; cancellation shows as contributions that are larger than the value. The result's own magnitude is always
    among them: it covers the last operation and a library function that is good to c1 units. condition: for f(x) with
    a rounded x, |x·f'(x) / f(x)|, which adds condition·|value|.
    """
    _real("elementwise", value)
    magnitude = value.double().abs()
    magnitude = magnitude + magnitude * condition if isinstance(condition, torch.Tensor) or condition else magnitude
    for contribution in contributions:
        magnitude = magnitude + torch.as_tensor(contribution, dtype=torch.float64, device=value.device).abs()
    return {"expected": value.double(), "magnitude": magnitude, "terms": 1}


def perturbed(function: Callable[..., Any], inputs: Sequence[torch.Tensor], allow: str = "") -> list[Row]:
    """Rows for the outputs of any function that is made of torch's operations, in the precision of its inputs.

    What is expected is the function in fp64, whatever types it names on the way. How far honest arithmetic may be from
    that is tried: inputs and the result of every operation are off by up to half a unit of the type that each has when
    the function is run as it is, relatively and at random, in four runs; inputs by no more than the finest type among
    them. Sums and products of n terms in float32 are off by sqrt(n)/4 as much more, as one accumulator makes them; in
    16 bits a wider one is at hand. The magnitude is the sum of the four errors, and nowhere less than what three
    quarters of an element's row have, of those that are off at all, absolutely and as a share of their value: an
    element whose errors happened to cancel is judged as its neighbours are. That is some 3 standard deviations of one
    honest run; c1 (4 for float32, 1 for 16 bits) is the room beyond. Where a small change of inputs decides what comes
    out (a sort, a threshold), the bound is as wide as what it decides. Outputs of integers and truth values are exact.
    allow: `check.allow` of problem.yaml, the precision that operands of products may be rounded to.
    """
    _real("perturbed", *inputs)
    units = Units(inputs)
    copies = [tensor.clone() for tensor in inputs]
    with units:
        function(*copies)
    generator = torch.Generator(device=inputs[0].device).manual_seed(0)

    def run(mode: Rounded) -> list[torch.Tensor]:
        wide = [tensor.double() if tensor.dtype.is_floating_point else tensor.clone() for tensor in inputs]
        wide = [mode.rounded(tensor, units.finest) for tensor in wide]
        with mode:
            result = function(*wide)
        return list(result) if isinstance(result, tuple | list) else [result]

    right = run(plain := Rounded(None, generator))
    units.known = plain.names == units.names
    errors = [torch.zeros_like(output) for output in right]
    for _ in range(_RUNS):
        for error, output, other in zip(errors, right, run(Rounded(units, generator, ALLOWED[allow])), strict=True):
            error += (other - output).abs().nan_to_num(0.0) if output.is_floating_point() else 0
    rows = []
    for output, error in zip(right, errors, strict=True):
        if not (output.is_floating_point() and output.numel()):
            rows.append(exact(output))
            continue
        shape = (-1, error.shape[-1] if error.ndim and error.shape[-1] >= _ROW else error.numel())
        lines, size = error.reshape(shape), output.abs().reshape(shape)
        share = lines / size.clamp_min(torch.finfo(torch.float32).tiny)
        magnitude = lines.maximum(_quarter(lines)).maximum(_quarter(share) * size).view(output.shape)
        rows.append({"expected": output, "magnitude": magnitude, "terms": 1, "eps": 1.0})
    return rows


def _quarter(lines: torch.Tensor) -> torch.Tensor:
    """Of each line what three quarters of its values that are not 0 reach."""
    zeros = (lines == 0).sum(dim=1, keepdim=True)
    place = (zeros + (lines.shape[1] - zeros) // 4).clamp_max(lines.shape[1] - 1)
    return lines.sort(dim=1).values.gather(1, place)


def exact(value: torch.Tensor) -> Row:
    """Integers, copies, permutations, picks: no error but the output type's own rounding."""
    return {"expected": value, "magnitude": torch.zeros((), dtype=torch.float64, device=value.device), "terms": 1}


def _partial_sums(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What partial sums of a @ b can be, and sqrt(Σ(a_i b_i)²), in float32 of scaled operands: good to 1e-5."""
    left, right = (one.unsqueeze(at) if one.ndim == 1 else one for one, at in ((a, 0), (b, 1)))
    (left, rows), (right, columns) = _scaled(left, -1), _scaled(right, -2)
    squares = (left.square() @ right.square()).sqrt_()
    largest, prefix, step = squares.clone(), torch.zeros((), device=a.device), max(-(-a.shape[-1] // _PREFIXES), 1)
    for start in range(0, a.shape[-1] - step, step):
        part = left[..., start : start + step] @ right[..., start : start + step, :]
        prefix = prefix.add_(part) if start else part
        torch.maximum(largest, prefix.abs(), out=largest)
    return largest.double().mul_(rows).mul_(columns), squares.double().mul_(rows).mul_(columns)


def _scaled(operand: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In float32, no value larger than 1 along `dim`; and in fp64 what it was divided by."""
    if not operand.shape[dim]:
        return operand.float(), torch.ones((), dtype=torch.float64, device=operand.device)
    wide = operand if operand.dtype == torch.float64 else operand.float()
    least, most = torch.aminmax(wide, dim=dim, keepdim=True)
    size = torch.maximum(-least, most).clamp_min(torch.finfo(torch.float32).tiny)
    return (wide / size).float(), size.double()


def _growth(k: int, *operands: torch.Tensor) -> float:
    """What a dot product of k terms may be off by, in float32's eps times H (`matmul`)."""
    rounding = _GROWTH * (math.sqrt(k) + 1)
    if not any(one.is_cuda for one in operands):
        return rounding
    narrower = min(_NEXT.get(one.dtype, _TF32) for one in operands)
    return max(rounding, min(rounding + _CUT_OFF * k, _APART * narrower / torch.finfo(torch.float32).eps))


def portion(tensor: torch.Tensor) -> int:
    """How many elements of it to work on at once."""
    return _DEVICE_CHUNK if tensor.is_cuda else _CHUNK


def _real(name: str, *operands: torch.Tensor) -> None:
    """Refuse complex operands, of which fp64 would keep the real part alone. ValueError."""
    if any(operand.is_complex() for operand in operands):
        raise ValueError(f"bounds.{name} is for real numbers: give a row of your own for complex ones")


def _long_sums(x: torch.Tensor) -> torch.Tensor:
    """Of some rows in float32, each summed up. What is computed here needs few digits."""
    n = x.shape[1]
    growth, eps = math.sqrt(n), torch.finfo(x.dtype).eps
    lanes = x[:, : n // _LANES[0] * _LANES[0]].view(len(x), -1, _LANES[0]).sum(1)
    most = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    for count in _LANES:
        lanes = lanes.view(len(x), -1, count).sum(1)
        most = most.maximum(lanes.square().mean(1))
    partial = x.cumsum(1)
    most = (most + partial.abs().amax(1).square() + torch.linalg.vecdot(x, x)).sqrt().double()
    power = (partial.view(torch.int32) & _EXPONENT).view(torch.float32).mul_(1.5)  # adding it rounds as a partial does
    lost = (x + power).sub_(power).sub_(x).sum(1, dtype=torch.float64).abs()
    own = most * (_GROWTH / _UNIT * (1 + 1 / growth))
    if n > _LONG:
        own = x.abs().sum(1, dtype=torch.float64) / growth + most / 16
    magnitude: torch.Tensor = own + lost / (4 * eps * growth)
    return magnitude


def _softmax_rows(
    x: torch.Tensor, y: torch.Tensor, magnitude: torch.Tensor, c1: float, limits: torch.finfo
) -> torch.Tensor:
    """Rows of `softmax`, written into y and magnitude without another temporary of that size than d; `common`."""
    d = x.double()
    d -= d.amax(dim=1, keepdim=True)
    torch.exp(d, out=y)
    y /= y.sum(dim=1, keepdim=True)
    d.abs_()
    mean = torch.linalg.vecdot(y, d)
    if not mean.isfinite().all():
        d.clamp_(max=_VANISHES)  # masked elements: d is infinite where y is 0
        mean = torch.linalg.vecdot(y, d)
    common: torch.Tensor = 1 + mean + x.shape[1] ** 0.5 / c1
    if not y.amin() >= 4 * limits.eps:
        common += torch.where(y < 4 * limits.eps, y.clamp(max=limits.eps / 2), 0.0).sum(dim=1) / (limits.eps * c1)
    d += (2 + mean).unsqueeze(1)
    torch.addcmul(torch.tensor(limits.tiny / limits.eps, dtype=torch.float64, device=x.device), y, d, out=magnitude)
    return common
