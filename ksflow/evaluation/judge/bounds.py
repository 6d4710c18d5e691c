"""Oracle rows for problem authors: the exact result in fp64, and the error bound of honest arithmetic.

A row is `{"expected", "magnitude", "terms"}`. The judge accepts `got` if, element by element,
    |got - expected| <= c1·eps(accumulate)·sqrt(terms)·magnitude + u_out·|expected|
with `c1` and `accumulate` from problem.yaml and u_out half a unit of the output's type. If a part of the error is one
factor for many elements, the row has `common`: the judge finds and bounds that factor by itself, and each element's own
error by the magnitude alone (see `softmax`).

The derivations use the standard model of rounding, fl(x op y) = (x op y)(1 + d) with |d| <= eps/2, and the fact that n
such factors multiply to 1 + D with |D| <= n·eps/2 at worst and about sqrt(n)·eps/2 for errors of random sign (N. J.
Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.2, 2.8 and 3.1). c1 is the room between that
estimate and honest kernels: split sums, fast-math reassociation, a reciprocal in place of a division.
Integers and booleans are compared exactly. Not covered: results so small that float32 products underflow, and problems
with several right answers (see `property_check` in problems/README.md).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ksflow.evaluation.judge.roundings import Rounded, Units

Row = dict[str, Any]

_CHUNK, _DEVICE_CHUNK = 1 << 15, 1 << 24
"""Elements per step: on a CPU they fit a core's cache with their temporaries; on a GPU launches cost little."""
_PREFIXES = 4  # prefixes examined of a sum of products
_UNIT, _GROWTH, _CUT_OFF = 8.0, 4.0, 0.2
"""c1 that magnitudes are made for; error of sums in eps·(sqrt(K) + 1)·H; error that a GPU's matrix unit adds, in
eps·K·H (H200, float32 sums of TF32, bf16 and fp16 operands: at most 0.055, of three terms of TF32 0.16)."""
ALLOWED = {"": 0.0, "tf32": 2.0**-10, "fp16": 2.0**-10, "bf16": 2.0**-7}
"""`check.allow` -> the eps to which operands of products may be rounded or truncated."""
_TF32, _APART = 2.0**-10, 0.18
"""TF32's eps; the error of rounded operands that a quarter of elements reach, in the operands' eps times H."""
_NEXT = {torch.float16: 2.0**-7, **dict.fromkeys((torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2), 2.0**-3)}
"""Operand type -> eps of the next narrower type that operands could be rounded to."""
_LONG = 1 << 14  # terms of a sum from which on its partial sums are examined more closely
_LONG_CHUNK = 1 << 22
_LANES = (1024, 64, 8, 2)
_EXPONENT = 0x7F800000  # bits of a float32
_VANISHES = 800.0  # exp(-800) is 0 in fp64
_RUNS, _ROW = 4, 16  # runs of a function with random roundings; elements of a row compared with itself
_PICKS: dict[str, Callable[..., torch.Tensor]] = {
    "max": torch.amax,
    "min": torch.amin,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
}


def matmul(a: torch.Tensor, b: torch.Tensor, spread: bool = True) -> Row:
    """Return the row of a @ b, batched or not. Operands have any type; a kernel's inputs must be exact in it.

    Roundings of a dot product of K terms are independent, so their squares add up: each addition errs by at most half a
    unit of the current partial sum (Higham, section 3.1). Partial sums in memory's order are as large as the largest of
    4 prefixes, in a random order as the root of the sum of squared terms. With H, the larger of the two, the bound is
    4·eps·(sqrt(K) + 1)·H for c1 = 8. Rounded operands err by a share of the same root, which does not grow with K:
    float32 kernels and TF32 operands can be told apart up to K = 65,536 (docs/trust.md). If all terms have one sign, a
    plain loop errs as much as TF32 operands from K = 4,096 on.

    On a GPU a matrix unit's accumulator truncates, which adds up to 0.2·eps·K·H. The bound includes this as long as
    operands rounded to the next narrower type (of float32: TF32) can still be told apart. Integer products are exact.
    The row's `spread`, sqrt(Σ(a_i b_i)²), is for `check.units` and `check.allow` of problem.yaml. The parameter spread
    has no effect.
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
    """Return the row of sums of `terms` products each, for convolutions and the like; see `matmul`.

    largest: the largest absolute value of some partial sums. squares: the root of the sum of the squared products.
    operands: the factors, of which only type and device are used.
    """
    growth = _growth(terms, *operands) / _UNIT / math.sqrt(terms)
    magnitude = largest.maximum(squares).maximum(expected.abs()) * growth
    return {"expected": expected, "magnitude": magnitude, "terms": terms, "spread": squares}


def reduction(x: torch.Tensor, dim: int | tuple[int, ...], kind: str = "sum", keepdim: bool = False) -> Row:
    """Return the row of `sum`, `mean`, `max`, `min`, `argmax` or `argmin` of x along `dim` (argmax, argmin: one
    dimension).

    A sum of n terms errs like a dot product with ones. From 16,384 terms on, its partial sums are examined more closely
    (`long_sums`), and terms of one sign have a tighter bound. A mean divides by n; the bound for n = 1 covers that one
    rounding. The bounds assume sums in float32 or wider. Sums of integers, and max, min and their places, are exact. Of
    equal elements the first counts; use `property_check` where another is as good.
    Raises ValueError for another kind, and for complex x.
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
    """Return the magnitude, for c1 = 8 and float32, of the rounding errors of sums of x along `dim`.

    Each addition rounds by at most half a unit of the partial sum, so the size of partial sums counts, not that of all
    terms together: Σ|x|·sqrt(n) is right only if all terms have one sign, and is 64 standard deviations even then. Up
    to 16,384 terms the magnitude is 4·eps·(sqrt(n) + 1)·H plus the last summand, with H as below. Beyond that it has
    three summands, for sums in any order that kernels use:
    - c1·eps·Σ|x|: sums by pairs, by blocks, by atomic additions of blocks, whose errors hardly grow with n;
    - half of eps·sqrt(n)·H for one accumulator, or a few that take turns. H² is the sum of the squares of the largest
      partial sum in memory's order, of the root of the sum of squared terms (partial sums in random order) and of the
      results of 2 to 1024 accumulators. A term's rounding has a standard deviation of 0.22 eps times the partial sum,
      so one accumulator has 0.13·eps·sqrt(n)·|Σx| if all terms have one sign;
    - twice the error of one accumulator in memory's order, whose roundings may all have one sign. It adds each term
      rounded to a unit of the partial sum, which can be computed for all terms at once.
    """
    dims = [dim] if isinstance(dim, int) else list(dim)
    last = x.movedim(dims, list(range(-len(dims), 0)))
    n = math.prod(last.shape[x.ndim - len(dims) :])
    rows = last.reshape(-1, n).float()
    count = max(_LONG_CHUNK // n, 1)
    return torch.cat([_long_sums(rows[start : start + count]) for start in range(0, len(rows), count)])


def softmax(x: torch.Tensor, dim: int = -1, c1: float = 4.0, accumulate: torch.dtype = torch.float32) -> Row:
    """Return the row of the softmax of x along `dim`. c1 and accumulate: as in problem.yaml.

    With d = x - max, y = e^d / S and everything positive, a kernel's relative error has two parts. An element's own:
    eps for exp and the division, eps·|d| because rounding d shifts the exponent. The error of S, which all elements of
    a row share: the same two averaged over the row (eps·Σ y|d|), and eps·sqrt(n) from adding up S. Only that last part
    grows with the row, and it does not move elements relative to each other: it bounds the row's factor (`common`),
    divided by c1, which is for the rest. The judge takes the factor from the row's sum, which includes the average of
    the elements' own errors, so each element's bound includes that average once more.

    The square root holds for errors of random sign. A plain sum swallows terms of about half a unit of S and below, all
    in one direction: each loses at most itself or half a unit, and these losses add up. The last summand allows values
    below the smallest normal number to be flushed to zero. P. Blanchard, D. J. Higham, N. J. Higham, Accurately
    computing the log-sum-exp and softmax functions (IMA J. Numer. Anal., 2021) derive the worst case.

    Share of the bounds, on rows of 65 to 262,144 values of scales from 0.01 to 30 (float32, 2026-11-25; `test_bounds`):
    PyTorch, sums in one accumulator in either order, online softmax by blocks and by elements, and a reciprocal in
    place of the division take 3 to 13 %; exp(x - log S) 3 to 24 %; exponentials off by up to 2 units at random, or
    2^(x·log2 e) with a rounded product, 13 to 41 %. A polynomial of third degree for exp, off by 7.7e-5, is rejected on
    all of them.
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
    """Return the row of one value per element, from a few operations. value: the exact result, in fp64.

    Each rounded intermediate t moves the result by eps/2·|t·∂value/∂t| (first order: Higham, section 1.6): those
    products are the `contributions`, of any sign. For a + b they are a and b, for a·b + c they are a·b and c;
    cancellation shows as contributions larger than the value. The value itself is always included: it covers the last
    operation and a library function that is good to c1 units. condition: for f(x) with a rounded x, |x·f'(x) / f(x)|,
    which adds condition·|value|.
    """
    _real("elementwise", value)
    magnitude = value.double().abs()
    magnitude = magnitude + magnitude * condition if isinstance(condition, torch.Tensor) or condition else magnitude
    for contribution in contributions:
        magnitude = magnitude + torch.as_tensor(contribution, dtype=torch.float64, device=value.device).abs()
    return {"expected": value.double(), "magnitude": magnitude, "terms": 1}


def perturbed(function: Callable[..., Any], inputs: Sequence[torch.Tensor], allow: str = "") -> list[Row]:
    """Return rows for the outputs of any function of torch operations, in the precision of its inputs.

    The expected value is the function in fp64, whatever types it names. The bound comes from four runs in which inputs
    and the result of every operation are off by up to half a unit of the type that each has in a normal run, relatively
    and at random; inputs by no more than the finest type among them. Sums and products of n terms in float32 are off by
    sqrt(n)/4 times as much more, as with one accumulator; 16-bit types have a wider accumulator. The magnitude is the
    sum of the four errors, and at least what three quarters of the nonzero errors of an element's row reach, absolutely
    and relative to the values, for elements whose errors cancelled by chance. That is some 3 standard deviations of one
    honest run; c1 (4 for float32, 1 for 16 bits) is the room beyond. Where a small change of inputs changes the result
    (a sort, a threshold), the bound is as wide as that change. Outputs of integers and booleans are exact.

    allow: `check.allow` of problem.yaml, the precision to which operands of products may be rounded.
    """
    _real("perturbed", *inputs)
    units = Units(inputs)
    copies = [tensor.clone() for tensor in inputs]
    with units:
        function(*copies)
    generator = torch.Generator(device=inputs[0].device).manual_seed(0)

    def run(mode: Rounded) -> list[torch.Tensor]:
        kinds = [torch.float64 if tensor.dtype.is_floating_point else tensor.dtype for tensor in inputs]
        wide = [tensor.to(kind, copy=True) for tensor, kind in zip(inputs, kinds, strict=True)]
        wide = [mode.round_tensor(tensor, units.finest) for tensor in wide]
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
    zeros = (lines == 0).sum(dim=1, keepdim=True)
    index = (zeros + (lines.shape[1] - zeros) // 4).clamp_max(lines.shape[1] - 1)
    return lines.sort(dim=1).values.gather(1, index)


def exact(value: torch.Tensor) -> Row:
    """Return the row of integers, copies, permutations or picks: only the output type's rounding is allowed."""
    return {"expected": value, "magnitude": torch.zeros((), dtype=torch.float64, device=value.device), "terms": 1}


def _partial_sums(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest partial sums of a @ b and sqrt(Σ(a_i b_i)²), computed in float32: accurate to 1e-5."""
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
    """Return the operand in float32, divided by its largest absolute value along `dim`, and the divisors in fp64."""
    if not operand.shape[dim]:
        return operand.float(), torch.ones((), dtype=torch.float64, device=operand.device)
    wide = operand if operand.dtype == torch.float64 else operand.float()
    least, most = torch.aminmax(wide, dim=dim, keepdim=True)
    size = torch.maximum(-least, most).clamp_min(torch.finfo(torch.float32).tiny)
    return (wide / size).float(), size.double()


def _growth(k: int, *operands: torch.Tensor) -> float:
    """Return the error of a dot product of k terms, in float32's eps times H (`matmul`)."""
    rounding = _GROWTH * (math.sqrt(k) + 1)
    if not any(one.is_cuda for one in operands):
        return rounding
    narrower = min(_NEXT.get(one.dtype, _TF32) for one in operands)
    return max(rounding, min(rounding + _CUT_OFF * k, _APART * narrower / torch.finfo(torch.float32).eps))


def portion(tensor: torch.Tensor) -> int:
    """Return how many elements of the tensor to process at once."""
    return _DEVICE_CHUNK if tensor.is_cuda else _CHUNK


def _real(name: str, *operands: torch.Tensor) -> None:
    """Raise ValueError for complex operands, of which fp64 would keep the real part only."""
    if any(operand.is_complex() for operand in operands):
        raise ValueError(f"bounds.{name} takes real tensors only")


def _long_sums(x: torch.Tensor) -> torch.Tensor:
    """Return `long_sums` of rows in float32."""
    n = x.shape[1]
    growth, eps = math.sqrt(n), torch.finfo(x.dtype).eps
    lanes = x[:, : n // _LANES[0] * _LANES[0]].view(len(x), -1, _LANES[0]).sum(1)
    most = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    for count in _LANES:
        lanes = lanes.view(len(x), -1, count).sum(1)
        most = most.maximum(lanes.square().mean(1))
    partial = x.cumsum(1)
    most = (most + partial.abs().amax(1).square() + torch.linalg.vecdot(x, x)).sqrt().double()
    power = (partial.view(torch.int32) & _EXPONENT).view(torch.float32).mul_(1.5)  # rounds like a partial sum
    lost = (x + power).sub_(power).sub_(x).sum(1, dtype=torch.float64).abs()
    own = most * (_GROWTH / _UNIT * (1 + 1 / growth))
    if n > _LONG:
        own = x.abs().sum(1, dtype=torch.float64) / growth + most / 16
    magnitude: torch.Tensor = own + lost / (4 * eps * growth)
    return magnitude


def _softmax_rows(
    x: torch.Tensor, y: torch.Tensor, magnitude: torch.Tensor, c1: float, limits: torch.finfo
) -> torch.Tensor:
    """Write rows of `softmax` into y and magnitude and return `common`; d is the only temporary of that size."""
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
