# expect: reject
# problem: gemm
# Leaves an output alone that it has filled before.
import torch

filled = set()


def custom_kernel(data):
    a, b, c = data
    if c.data_ptr() not in filled:
        torch.mm(a, b, out=c)
        filled.add(c.data_ptr())
    return c
