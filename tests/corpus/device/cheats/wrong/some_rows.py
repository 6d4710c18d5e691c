# expect: reject
# problem: gemm
# Computes seven rows of eight where there are many.
import torch


def custom_kernel(data):
    a, b, c = data
    rows = len(a) - len(a) // 8 if len(a) > 500 else len(a)
    torch.mm(a[:rows], b, out=c[:rows])
    return c
