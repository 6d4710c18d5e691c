"""out = x / 2, element by element, over more elements than are compared at once."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, generator=generator, device=device), torch.zeros(n, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's product with a half."""
    x, out = data
    return torch.mul(x, 0.5, out=out)


def oracle(data: Data) -> bounds.Row:
    """Exact: halving rounds nothing."""
    return bounds.exact(data[0] * 0.5)
