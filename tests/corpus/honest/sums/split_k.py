# expect: accept
# problem: deep_matmul
# Splits the sum into sixteen parts, and adds them in no particular order.
import torch


def custom_kernel(data):
    a, b, c = data
    size = -(-a.shape[1] // 16)
    parts = [torch.mm(left, right) for left, right in zip(a.split(size, 1), b.split(size, 0))]
    return c.copy_(sum(parts[::2]) + sum(parts[1::2], torch.zeros_like(c)))
