"""Depthwise 3-D convolution: inputs, PyTorch reference, fp64 oracle. Runs in the judge's process."""

import torch
from torch.nn.functional import conv3d, pad

from ksflow.evaluation.judge import bounds

UPSTREAM_RTOL = 2e-2
UPSTREAM_ATOL = 2e-2

Data = tuple[torch.Tensor, ...]


def generate_input(  # noqa: PLR0913 - a case's own parameters
    n: int,
    c: int,
    d: int,
    h: int,
    w: int,
    kd: int,
    kh: int,
    kw: int,
    seed: int,
    dtype: str = "bfloat16",
    size: int = 2,  # noqa: ARG001 - the element's bytes, for `work`
    device: str = "cpu",
) -> Data:
    """Normal values; filters are scaled so that outputs have a variance of 1."""
    gen = torch.Generator(device=device).manual_seed(seed)
    kind = getattr(torch, dtype)
    x = torch.randn((n, c, d, h, w), device=device, generator=gen).to(kind)
    f = torch.randn((c, kd, kh, kw), device=device, generator=gen).mul_((kd * kh * kw) ** -0.5).to(kind)
    return x, f, torch.zeros((n, c, d - kd + 1, h, w), dtype=kind, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's grouped convolution; height and width are padded with zeros, depth is not."""
    x, f, y = data
    kh, kw = f.shape[2:]
    return y.copy_(conv3d(x, f.unsqueeze(1), padding=(0, kh // 2, kw // 2), groups=len(f)))


def oracle(data: Data) -> bounds.Row:
    """In fp64: each output, its largest partial sum, and its products' squares: kd·kh·kw products for each.

    Tap by tap, so that no library's choice of an algorithm is in it.
    """
    x, f, y = data
    kd, kh, kw = f.shape[1:]
    wide = pad(x.double(), (kw // 2, kw // 2, kh // 2, kh // 2))
    taps = f.double()
    expected, largest, squares = (torch.zeros_like(y, dtype=torch.float64) for _ in range(3))
    for i in range(kd):
        for j in range(kh):
            for k in range(kw):
                part = wide[:, :, i : i + y.shape[2], j : j + y.shape[3], k : k + y.shape[4]]
                product = part * taps[:, i, j, k].view(1, -1, 1, 1, 1)
                expected += product
                torch.maximum(largest, expected.abs(), out=largest)
                squares += product.square_()
    return bounds.sums_of_products(expected, largest, squares.sqrt_(), kd * kh * kw, x, f)


def upstream_check(data: Data, output: torch.Tensor) -> str:
    """A usual test suite's rule (allclose to the library): "" when it passes, else why not."""
    expected = ref_kernel((*data[:2], torch.zeros_like(data[2])))
    if output.shape != expected.shape:
        return f"shape {tuple(output.shape)}, expected {tuple(expected.shape)}"
    bad = ~torch.isclose(output, expected, rtol=UPSTREAM_RTOL, atol=UPSTREAM_ATOL)
    return f"{int(bad.sum())} of {bad.numel()} elements off" if bad.any() else ""
