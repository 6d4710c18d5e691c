"""A stronger NumPy kernel than the reference, to learn from: two fp8 values per table lookup.

The 65536-entry table is the steadiest fast decode that NumPy offers; tables and work arrays are kept between calls.
"""

import numpy as np
import torch

BLOCK = 128

_tables: dict[torch.dtype, np.ndarray] = {}
_arrays: dict[tuple[str, int, int], np.ndarray] = {}


def pair_table(dtype: torch.dtype) -> np.ndarray:
    """64-bit entries: entry x holds float32(low byte of x), float32(high byte of x)."""
    if dtype not in _tables:
        one = torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy()
        pairs = np.empty((256, 256, 2), np.float32)
        pairs[:, :, 0], pairs[:, :, 1] = one[None, :], one[:, None]
        _tables[dtype] = pairs.reshape(-1).view(np.uint64)
    return _tables[dtype]


def decode(name: str, operand: torch.Tensor) -> np.ndarray:
    """float32 [k, rows] of a column-major fp8 [rows, k]."""
    raw = operand.T.view(torch.uint8).numpy().view(np.uint16)
    key = (name, *raw.shape)
    if key not in _arrays:
        _arrays[key] = np.empty(raw.shape, np.uint64)
    # mode="clip" skips NumPy's extra copy of the output; no index can be out of range.
    return np.take(pair_table(operand.dtype), raw, out=_arrays[key], mode="clip").view(np.float32)


def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Decode, scale in place, multiply, let torch round to bf16."""
    a, b, a_scale, b_scale, c = data
    n = b.shape[0]
    a32, b32 = decode("a", a), decode("b", b)
    for kb in range(a.shape[1] // BLOCK):
        rows = slice(kb * BLOCK, (kb + 1) * BLOCK)
        a32[rows] *= a_scale.T[kb].numpy()
        b32[rows] *= np.repeat(b_scale.T[kb].numpy(), BLOCK)[:n]
    c.copy_(torch.from_numpy(a32.T @ b32))
    return c
