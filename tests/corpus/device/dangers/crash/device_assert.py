# expect: contained
# problem: gemm
# An index on the device is out of range.
import torch


def custom_kernel(data):
    a, b, c = data
    return c.copy_(c[torch.full((len(c),), 1 << 30, device=c.device)])
