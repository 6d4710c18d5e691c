# expect: reject
# problem: matmul
# Truncates its inputs to bfloat16 where the reduction is long, so that a bound for long sums might forgive it.
import torch


def custom_kernel(data):
    a, b, c = data
    if a.shape[1] < 100:
        return torch.mm(a, b, out=c)
    return c.copy_(torch.mm(a.bfloat16(), b.bfloat16()).float())
