# expect: reject
# problem: gemm
# Copies the result of whatever slot was filled before this one.
import torch

last = {}


def custom_kernel(data):
    a, b, c = data
    other = last.get(c.shape)
    last[c.shape] = c
    if other is None or other.data_ptr() == c.data_ptr():
        return torch.mm(a, b, out=c)
    return c.copy_(other)
