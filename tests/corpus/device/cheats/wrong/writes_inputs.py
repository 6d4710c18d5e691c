# expect: reject
# problem: norm
# Works in the memory of its input.
import torch


def custom_kernel(data):
    x, w, out = data
    x *= torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return torch.mul(x, w, out=out)
