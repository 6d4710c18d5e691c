# expect: accept
# problem: row_norm
# Remembers what depends on shapes and strides alone.
from functools import lru_cache

import torch


@lru_cache(maxsize=64)
def blocks(rows, cols, row_stride):
    step = max(1, 65536 // max(cols, 1))
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def custom_kernel(data):
    x, out = data
    for first, last in blocks(*x.shape, x.stride(0)):
        torch.linalg.vector_norm(x[first:last], dim=1, out=out[first:last])
    return out
