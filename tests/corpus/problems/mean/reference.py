"""The mean of every row."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int, device: str = "cpu") -> Data:
    """Normal values around 10 in the first row, 11 in the next, and so on; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), generator=generator, device=device)
    return x.add_(torch.arange(10, 10 + rows, device=device).unsqueeze(1)), torch.zeros(rows, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's mean."""
    x, out = data
    return torch.mean(x, dim=1, out=out)


def oracle(data: Data) -> bounds.Row:
    """As the helper for sums derives it."""
    return bounds.reduction(data[0], 1, "mean")
