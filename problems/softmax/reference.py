"""Row softmax: inputs, PyTorch reference, fp64 oracle. Runs in the judge's process."""

import torch

EPS = 2.0**-23
SMALLEST_NORMAL = 2.0**-126
C1 = 4  # problem.yaml's, which the judge multiplies with
UPSTREAM_RTOL = 1e-5
UPSTREAM_ATOL = 1e-7

Data = tuple[torch.Tensor, ...]


def generate_input(
    rows: int, cols: int, seed: int, scale: float = 1, shift: float = 0, device: str = "cpu"
) -> Data:
    """Normal values times `scale` plus `shift`; the output is preallocated zeros."""
    gen = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), dtype=torch.float32, device=device, generator=gen)
    return x * scale + shift, torch.zeros((rows, cols), dtype=torch.float32, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's softmax, written into the preallocated output."""
    x, y = data
    return torch.softmax(x, dim=1, out=y)


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64 softmax and how far honest float32 arithmetic may be from it.

    With d = x - max(row), y = e^d / S and everything positive, a float32 kernel's relative error
    is made of eps for exp and the division, eps·|d| because rounding d shifts the exponent, the
    same two averaged over the row (they enter S: eps·Σ y|d|), and eps·sqrt(cols) from adding up
    S. Only that last part grows with the row, so `terms` is 1 and the growth is in the magnitude,
    divided by c1, which is meant for the rest. The square root holds while the errors have random
    signs. Terms around half a unit of S and below are swallowed one after the other by a plain
    sum, all in one direction: each loses at most itself or half a unit, and these losses add up.
    The last summand lets values below the smallest normal number be flushed to zero.
    """
    x = data[0].double()
    d = (x - x.amax(dim=1, keepdim=True)).abs()
    y = torch.softmax(x, dim=1)
    mean = (y * d).sum(dim=1, keepdim=True)
    swallowed = torch.where(y < 4 * EPS, y.clamp(max=EPS / 2), 0.0).sum(dim=1, keepdim=True) / EPS
    magnitude = y * (1 + d + mean + (x.shape[1] ** 0.5 + swallowed) / C1) + SMALLEST_NORMAL / EPS
    return {"expected": y, "magnitude": magnitude, "terms": 1}


def upstream_check(data: Data, output: torch.Tensor) -> str:
    """A usual test suite's rule (allclose to the library): "" when it passes, else why not."""
    expected = ref_kernel((data[0], torch.zeros_like(data[1])))
    if output.shape != expected.shape:
        return f"shape {tuple(output.shape)}, expected {tuple(expected.shape)}"
    bad = ~torch.isclose(output, expected, rtol=UPSTREAM_RTOL, atol=UPSTREAM_ATOL)
    if not bad.any():
        return ""
    i, j = (int(v) for v in bad.nonzero()[0])
    return (
        f"{int(bad.sum())} of {bad.numel()} elements off, first at [{i}, {j}]: "
        f"got {output[i, j]:.6g}, expected {expected[i, j]:.6g}"
    )
