"""A small network whose hot part is written naively: an RMSNorm with a gate, nine passes over memory."""

import torch
from torch import nn


class Gate(nn.Module):
    """RMSNorm, a weight, and the input's own sigmoid as the gate."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2.0, size))

    def forward(self, x: torch.Tensor, times: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
        """`times` and `mask` as a framework's modules have them: most calls leave them alone."""
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight * torch.sigmoid(x) * times
        return x if mask is None else x * mask


class Block(nn.Module):
    """A gate, and a mix of channels through few of them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = Gate(size)
        self.mix = nn.Sequential(nn.Linear(size, size // 16), nn.Linear(size // 16, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """With a residual."""
        return x + self.mix(self.gate(x, times=2.0))


def model() -> nn.Module:
    """The network, as it is used: in evaluation mode, with its weights. On one core, like the judge's kernels."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return nn.Sequential(*(Block(512) for _ in range(4))).eval()


def inputs() -> tuple[torch.Tensor, ...]:
    """The arguments of a call that counts."""
    return (torch.randn(256, 512, generator=torch.Generator().manual_seed(2)),)
