# expect: accept
# problem: matmul
# Asks for forgiveness: the fast way fails for some shapes, another follows.
import torch


def fast(a, b, c):
    if a.shape[1] % 2:
        raise ValueError("odd depth")
    return torch.addmm(c.zero_(), a, b, out=c)


def custom_kernel(data):
    try:
        return fast(*data)
    except ValueError:
        return torch.mm(data[0], data[1], out=data[2])
