"""The softmax of every row."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), generator=generator, device=device)
    return x, torch.zeros((rows, cols), device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's softmax."""
    x, out = data
    return torch.softmax(x, dim=1, out=out)


def oracle(data: Data) -> bounds.Row:
    """As the helper derives it; c1 is problem.yaml's."""
    return bounds.softmax(data[0], dim=1, c1=4)
