"""out = |x| > 0.1, element by element: mostly true."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated, all false."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, generator=generator, device=device), torch.zeros(n, dtype=torch.bool, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's comparison."""
    x, out = data
    return torch.gt(x.abs(), 0.1, out=out)


def oracle(data: Data) -> bounds.Row:
    """Nothing is rounded."""
    return bounds.exact(data[0].abs() > 0.1)
