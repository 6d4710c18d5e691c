# expect: reject
# problem: gemm
# Gives the result of the call before, and computes its own for the next.
import torch

last = {}


def custom_kernel(data):
    a, b, c = data
    found = torch.mm(a, b)
    before = last.get(c.shape, found)
    last[c.shape] = found
    return c.copy_(before)
