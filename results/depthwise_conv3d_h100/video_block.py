"""Two blocks of a causal video autoencoder's shape: pointwise, depthwise 3x5x5 behind two repeated frames, pointwise."""
import torch
from torch import nn
from torch.nn import functional as F

C, D, H, W = 512, 59, 45, 80


class DepthwiseConv3d(nn.Module):
    """Each channel with a filter of its own; frames are padded by who calls it."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c, 3, 5, 5) / 75**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv3d(x, self.weight.unsqueeze(1), padding=(0, 2, 2), groups=x.shape[1])


class Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(c, 1, 1, 1))
        self.into, self.out = nn.Conv3d(c, c, 1), nn.Conv3d(c, c, 1)
        self.depthwise = DepthwiseConv3d(c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-6).to(x.dtype) * self.gain
        y = F.silu(self.into(y))
        y = torch.cat([y[:, :, :1], y[:, :, :1], y], 2)
        return x + self.out(F.silu(self.depthwise(y)))


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(Block(C), Block(C)).eval().to("cuda", torch.bfloat16)


def inputs() -> torch.Tensor:
    return torch.randn(1, C, D, H, W, dtype=torch.bfloat16, device="cuda")
