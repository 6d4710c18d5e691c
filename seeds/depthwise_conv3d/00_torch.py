"""Baseline: PyTorch's grouped convolution."""

import torch
from torch.nn.functional import conv3d


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """One library call, copied into the preallocated output."""
    x, f, y = data
    return y.copy_(conv3d(x, f.unsqueeze(1), padding=(0, f.shape[2] // 2, f.shape[3] // 2), groups=len(f)))
