"""Baseline: NumPy, without decoding: a product for each half of the codes, with the scales of both operands in x."""

import numpy as np
import torch

ROWS = 64  # tune: 16 64 256 1024 | block: rows for each pass


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Sum each block's products, then the blocks with their scales."""
    w, x, y = (tensor.numpy() for tensor in data)
    blocks, vector = w.reshape(len(w), -1, 18), x.reshape(-1, 34)
    digits = vector[:, 2:].view(np.int8) * vector[:, :2].view(np.float16).astype(np.float32)
    shift = 8 * digits.sum(axis=1)
    low, high = digits[:, None, :16], digits[:, None, 16:]
    for i in range(0, len(w), ROWS):
        codes = blocks[i : i + ROWS, :, 2:].transpose(1, 2, 0)
        sums = (low @ (codes & 15) + high @ (codes >> 4))[:, 0] - shift[:, None]
        scale = np.ascontiguousarray(blocks[i : i + ROWS, :, :2]).view(np.float16)[..., 0]
        y[i : i + ROWS] = np.einsum("rb,br->r", scale.astype(np.float32), sums)
    return data[2]
