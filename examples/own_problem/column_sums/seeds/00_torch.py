"""Baseline: PyTorch's own sum."""

import torch


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """One library call into the preallocated output."""
    x, y = data
    return torch.sum(x, dim=0, out=y)
