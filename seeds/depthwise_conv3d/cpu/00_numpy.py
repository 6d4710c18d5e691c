"""Baseline: NumPy, one tap after the other over a padded float32 copy."""

import numpy as np
import torch


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Sums of shifted planes, in float32."""
    x, f, y = data
    kd, kh, kw = f.shape[1:]
    wide = np.pad(x.float().numpy(), ((0, 0), (0, 0), (0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2)))
    taps = f.float().numpy()
    out = np.zeros(y.shape, np.float32)
    for i in range(kd):
        for j in range(kh):
            for k in range(kw):
                part = wide[:, :, i : i + y.shape[2], j : j + y.shape[3], k : k + y.shape[4]]
                out += part * taps[:, i, j, k].reshape(1, -1, 1, 1, 1)
    return y.copy_(torch.from_numpy(out))
