# expect: accept
# problem: gemm
# A plan for each shape: how the rows are split.
import torch

plans = {}


def plan(m):
    return [(start, min(start + 512, m)) for start in range(0, m, 512)]


def custom_kernel(data):
    a, b, c = data
    for start, stop in plans.setdefault(len(a), plan(len(a))):
        torch.mm(a[start:stop], b, out=c[start:stop])
    return c
