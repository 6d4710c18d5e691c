"""Triangle multiplicative update, outgoing edges: inputs, PyTorch reference, fp64 oracle with the errors of fp16.

Runs in the judge's process. The bound is no constant: `oracle` follows every rounding to 16 bits that an honest kernel
may make to the output, to first order and by variances, and says what their root mean square is for each element.
"""

import math
from typing import NamedTuple

import torch
from torch.nn.functional import layer_norm, linear

from ksflow.evaluation.judge import bounds

EPS = 1e-5
"""Added to the variance by both layer norms."""
STATIC_SEED = 71
UPSTREAM_TOLERANCE = 2e-2

Data = tuple[torch.Tensor, ...]


class Weights(NamedTuple):
    """All that a layer has learned."""

    norm_w: torch.Tensor
    norm_b: torch.Tensor
    left_w: torch.Tensor
    right_w: torch.Tensor
    left_gate: torch.Tensor
    right_gate: torch.Tensor
    out_gate: torch.Tensor
    out_norm_w: torch.Tensor
    out_norm_b: torch.Tensor
    out_w: torch.Tensor


class Side(NamedTuple):
    """The left or the right factor of the product."""

    value: torch.Tensor
    """Projected, masked, gated: [n, n, h]."""
    linear: torch.Tensor
    """The projection alone, masked."""
    gate: torch.Tensor
    logit: torch.Tensor


def generate_input(  # noqa: PLR0913 - a case's own parameters
    bs: int,
    n: int,
    c: int,
    h: int,
    seed: int,
    masked: int = 0,
    draw: str = "normal",
    static: int = 0,
    device: str = "cpu",
) -> Data:
    """One case. draw: of x, `normal` or `cauchy` (scale 2); `centred`: normal, and both layer norms without a shift, so
    that nothing of the product is the same for all pairs. static: weights that depend on sizes only, not on the seed.
    """
    gen = torch.Generator(device=device).manual_seed(seed)
    own = torch.Generator(device=device).manual_seed(STATIC_SEED) if static else gen
    if draw == "cauchy":
        x = torch.empty((bs, n, n, c), device=device).cauchy_(0, 2, generator=gen)
    else:
        x = torch.randn((bs, n, n, c), device=device, generator=gen)
    mask = torch.ones((bs, n, n), device=device)
    if masked:
        mask = torch.randint(0, 2, (bs, n, n), device=device, generator=gen).float()
    shapes = Weights((c,), (c,), (h, c), (h, c), (h, c), (h, c), (h, c), (h,), (h,), (c, h))
    drawn = [torch.randn(shape, device=device, generator=own) for shape in shapes]
    scaled = [one / math.sqrt(len(one)) if one.ndim > 1 else one for one in drawn]
    weights = Weights(*scaled)
    if draw == "centred":
        weights = weights._replace(norm_b=weights.norm_b * 0, out_norm_b=weights.out_norm_b * 0)
    return x, mask, *weights, torch.zeros_like(x)


def ref_kernel(data: Data) -> torch.Tensor:
    """float32 throughout, one item of the batch after the other."""
    x, mask, *rest, y = data
    w = Weights(*rest)
    for item, pairs, out in zip(x, mask, y, strict=True):
        z = layer_norm(item, w.norm_w.shape, w.norm_w, w.norm_b, EPS)
        left = factor(z, pairs, w.left_w, w.left_gate).value
        right = factor(z, pairs, w.right_w, w.right_gate).value
        normed = layer_norm(product(left, right), w.out_norm_w.shape, w.out_norm_w, w.out_norm_b, EPS)
        out.copy_(linear(normed * linear(z, w.out_gate).sigmoid(), w.out_w))
    return y


def factor(z: torch.Tensor, mask: torch.Tensor, projection: torch.Tensor, gate: torch.Tensor) -> Side:
    """One side of the product."""
    value, logit = linear(z, projection) * mask.unsqueeze(-1), linear(z, gate)
    opening = logit.sigmoid()
    return Side(value * opening, value, opening, logit)


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Out[i, j, d] = sum over k of left[i, k, d] right[j, k, d]."""
    return (left.permute(2, 0, 1) @ right.permute(2, 1, 0)).permute(1, 2, 0)


def oracle(data: Data) -> bounds.Row:
    """fp64, and the root mean square of an element's error if every rounding erred by one eps.

    An honest kernel multiplies 16-bit operands, adds up in float32 and stores in 16 bits what lies between its stages.
    Rounded are: the normalised x, all weights of projections, projections and logits, gates, both factors, their
    product, the second norm's result and that times the gate, and y. Roundings are independent, so variances add up;
    what a variance becomes behind a stage follows from the stage's derivative. A float32 sum errs by far less.
    """
    x, mask, *rest, _ = data
    w = Weights(*rest)
    rows = [_item(item, pairs, w) for item, pairs in zip(x, mask, strict=True)]
    expected, magnitude = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return {"expected": expected, "magnitude": magnitude, "terms": 1}


def upstream_check(data: Data, output: torch.Tensor) -> str:
    """The usual rule for this operation, 2e-2 both relative and absolute beside float32: "" when it passes."""
    expected = ref_kernel((*data[:-1], torch.zeros_like(data[-1])))
    if output.shape != expected.shape:
        return f"shape {tuple(output.shape)}, expected {tuple(expected.shape)}"
    bad = ~torch.isclose(output, expected, rtol=UPSTREAM_TOLERANCE, atol=UPSTREAM_TOLERANCE)
    return f"{int(bad.sum())} of {bad.numel()} elements off" if bad.any() else ""


def _item(x: torch.Tensor, mask: torch.Tensor, w: Weights) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one item of the batch what is expected, in fp64, and the magnitude of its error, in float32."""
    exact = Weights(*(one.double() for one in w))
    z = layer_norm(x.double(), exact.norm_w.shape, exact.norm_w, exact.norm_b, EPS)
    left = factor(z, mask.double(), exact.left_w, exact.left_gate)
    right = factor(z, mask.double(), exact.right_w, exact.right_gate)
    summed, logit = product(left.value, right.value), linear(z, exact.out_gate)
    near = z.float()
    del z
    spread = _product_variance(near, mask, (left, right), w) + summed.float().square()
    del left, right
    deviation = (summed.var(-1, correction=0, keepdim=True) + EPS).sqrt()
    unit = (summed - summed.mean(-1, keepdim=True)) / deviation
    del summed
    normed = unit * exact.out_norm_w + exact.out_norm_b
    gate = logit.sigmoid()
    gated = normed * gate
    expected = linear(gated, exact.out_w)
    normed, gate, logit, unit = normed.float(), gate.float(), logit.float(), unit.float()
    spread = _normed_variance(unit, spread / deviation.float().square()) * w.out_norm_w.square()
    steep = (gate * (1 - gate)).square()
    own = gated.float().square()
    spread = gate.square() * spread + normed.square() * steep * _logit_variance(near, w.out_gate, logit) + 4 * own
    variance = linear(spread, w.out_w.square()) + expected.float().square()
    return expected, variance.sqrt()


def _logit_variance(z: torch.Tensor, weight: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Of a projection: both operands of every product are rounded, and the sum when it is stored."""
    return 2 * linear(z.square(), weight.square()) + value.square()


def _product_variance(z: torch.Tensor, mask: torch.Tensor, sides: tuple[Side, Side], w: Weights) -> torch.Tensor:
    """Of the product over k, before it is stored.

    Roundings of z and of what is stored differ from k to k. A weight's rounding is the same for all k: what it does to
    the mean over k grows with n, not with its root.
    """
    n = z.shape[0]
    pairs = mask.unsqueeze(-1).square()
    weights = ((w.left_w, w.left_gate), (w.right_w, w.right_gate))
    apart, together, values = [], [], []
    for side, (projection, gate) in zip(sides, weights, strict=True):
        value, straight, opening, logit = (one.float() for one in side)
        bent = straight * opening * (1 - opening)
        by_projection = _logit_variance(z, projection, straight) * (opening.square() * pairs)
        apart.append(by_projection + _logit_variance(z, gate, logit) * bent.square() + 2 * value.square())
        means = [z.transpose(1, 2) @ one / n for one in (opening * mask.unsqueeze(-1), bent)]
        shares = zip(means, (projection, gate), strict=True)
        together.append(sum((mean * weight.T).square().sum(1) for mean, weight in shares))
        values.append(value)
    (left, right), (left_means, right_means) = values, (value.mean(1) for value in values)
    by_k = product(apart[0], right.square()) + product(left.square(), apart[1])
    common = together[0].unsqueeze(1) * right_means.square() + left_means.square().unsqueeze(1) * together[1]
    return by_k + common * n**2


def _normed_variance(unit: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """Behind a layer norm without its scale: d unit[d] / d x[e] = [d = e] - (1 + unit[d] unit[e]) / h, over deviation."""
    h = unit.shape[-1]
    first, second, third = ((spread * unit**power).sum(-1, keepdim=True) for power in range(3))
    own = spread * (1 - 2 * (1 + unit.square()) / h)
    return (own + (first + 2 * unit * second + unit.square() * third) / h**2).clamp_min(0)
