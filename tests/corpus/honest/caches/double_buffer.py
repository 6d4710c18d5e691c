# expect: accept
# problem: cumsum
# Two buffers of its own, used in turn and returned as results.
import itertools

import torch

buffers = {}


def custom_kernel(data):
    x, _ = data
    turns = buffers.setdefault(len(x), itertools.cycle([torch.empty(len(x), dtype=torch.int64) for _ in range(2)]))
    return torch.cumsum(x, 0, out=next(turns))
