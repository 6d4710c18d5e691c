"""A row of eight for each element: i where x > 3, else -1."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, generator=generator, device=device), torch.zeros(n, 8, dtype=torch.int32, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's choice between the two."""
    x, out = data
    return out.copy_(_marks(x))


def oracle(data: Data) -> bounds.Row:
    """Nothing is rounded."""
    return bounds.exact(_marks(data[0]))


def _marks(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.numel(), dtype=torch.int32, device=x.device)
    marks = torch.where(x > 3.0, places, torch.full_like(places, -1))
    return marks.view(-1, 1).expand(-1, 8).contiguous()
