"""out = y * exp(-x * x), element by element."""

import torch

EPS = 2.0**-23
SMALLEST_NORMAL = 2.0**-126

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x, y = (torch.randn(n, generator=generator, device=device) for _ in range(2))
    return x, y, torch.zeros(n, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's functions, one after the other."""
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64; rounding x * x moves the exponent, values below the smallest normal number may be flushed to zero."""
    x, y = data[0].double(), data[1].double()
    right = y * torch.exp(-x * x)
    magnitude = right.abs() * (1 + x * x) + SMALLEST_NORMAL * (1 + y.abs()) / EPS
    return {"expected": right, "magnitude": magnitude, "terms": 1}
