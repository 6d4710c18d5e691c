"""Baseline: PyTorch's own softmax kernel."""

import torch


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """One library call into the preallocated output."""
    x, y = data
    return torch.softmax(x, dim=1, out=y)
