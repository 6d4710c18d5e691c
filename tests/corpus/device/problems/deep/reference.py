"""c = a @ b in float32, with long sums."""

import torch
from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(m: int, n: int, k: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn((m, k), generator=generator, device=device)
    b = torch.randn((k, n), generator=generator, device=device)
    return a, b, torch.zeros((m, n), device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's product."""
    a, b, c = data
    return torch.mm(a, b, out=c)


def oracle(data: Data) -> bounds.Row:
    """fp64, with the bound of float32 sums."""
    return bounds.matmul(data[0], data[1])
