"""Baseline: the module's own forward."""

import torch


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Nine passes over memory."""
    x, weight, y = data
    return y.copy_(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight * torch.sigmoid(x) * 2.0)
