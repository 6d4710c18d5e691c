# expect: reject
# problem: gemm
# Computes one row, and returns a view that repeats it.
import torch


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a[:1], b).expand_as(c)
