"""Baseline: NumPy, in place in the output, in blocks of rows that stay in cache."""

import numpy as np
import torch

BLOCK = 65536  # tune: 4096 16384 65536 262144 | block: elements for each pass


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Maximum, exp, sum, scale; every step writes into y."""
    x, y = data[0].numpy(), data[1].numpy()
    step = max(1, BLOCK // x.shape[1])
    for i in range(0, x.shape[0], step):
        rows, out = x[i : i + step], y[i : i + step]
        np.subtract(rows, rows.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        out *= 1 / out.sum(axis=1, keepdims=True)
    return data[1]
