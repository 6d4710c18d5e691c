"""A small network for sequences whose hot part, a short convolution with a gate, is written as it is on paper."""

import torch
from torch import nn

CHANNELS, LAYERS = 64, 4


class ShortConv(nn.Module):
    """Each channel convolved with a filter of its own that looks back, then gated: one product after another."""

    def __init__(self, channels: int, taps: int = 4) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.randn(channels, taps) * taps**-0.5)
        self.bias = nn.Parameter(torch.randn(channels) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: batch, channels, time."""
        length, taps = x.shape[2], self.taps.shape[1]
        padded = nn.functional.pad(x, (taps - 1, 0))
        y = self.bias[:, None].expand_as(x)
        for tap in range(taps):
            y = y + self.taps[:, tap, None] * padded[:, :, tap : tap + length]
        return y * torch.sigmoid(y)


class Block(nn.Module):
    """A short convolution along time, then a mix of the channels through few of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = ShortConv(channels)
        self.mix = nn.Sequential(nn.Conv1d(channels, channels // 4, 1), nn.Conv1d(channels // 4, channels, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: batch, channels, time."""
        mixed: torch.Tensor = self.mix(self.conv(x))
        return x + mixed


def model() -> nn.Module:
    """The network, as it is used: in eval mode, and on one core, as kernels are judged."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return nn.Sequential(*(Block(CHANNELS) for _ in range(LAYERS))).eval()


def inputs() -> torch.Tensor:
    """What it is called with."""
    return torch.randn(2, CHANNELS, 2048, generator=torch.Generator().manual_seed(2))


def heldout() -> torch.Tensor:
    """What it is called with elsewhere: no model that writes kernels is shown this."""
    return torch.randn(1, CHANNELS, 3000, generator=torch.Generator().manual_seed(3))
