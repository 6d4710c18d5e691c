"""cache[:, at] += row / 2, in place."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]
_AT = {1: 0, 17: 11, 129: 100}
"""The length of a cache -> the row that is written."""


def generate_input(heads: int, length: int, d: int, at: int, seed: int, device: str = "cpu") -> Data:
    """Normal values."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shapes = ((heads, d), (heads, length, d))
    return tuple(torch.randn(shape, generator=generator, device=device) for shape in shapes)


def ref_kernel(data: Data) -> None:
    """The library's sum, in place."""
    row, cache = data
    cache[:, _AT[cache.shape[1]]].add_(row, alpha=0.5)


def oracle(data: Data) -> bounds.Row:
    """Nothing but the row may differ, and that by one rounding."""
    wide = tuple(tensor.double() for tensor in data)
    ref_kernel(wide)
    magnitude = torch.zeros_like(wide[1])
    magnitude[:, _AT[magnitude.shape[1]]] = wide[0].abs() + data[1][:, _AT[magnitude.shape[1]]].abs()
    return {"expected": wide[1], "magnitude": magnitude, "terms": 1}
