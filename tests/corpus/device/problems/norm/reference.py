"""out = x * w / sqrt(mean(x * x) + 1e-6) for each row."""

import torch

Data = tuple[torch.Tensor, ...]
EPS = 1e-6


def generate_input(rows: int, cols: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), generator=generator, device=device)
    w = torch.randn((cols,), generator=generator, device=device)
    return x, w, torch.zeros((rows, cols), device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's, rounded once."""
    x, w, out = data
    return out.copy_(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * w)


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64; errors are relative to the result, and a mean of squares keeps most of its bits in any order."""
    x, w = data[0].double(), data[1].double()
    expected = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * w
    return {"expected": expected, "magnitude": expected.abs(), "terms": 16}
