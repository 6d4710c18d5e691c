# expect: accept
# problem: gemm
# A table of what is best for which shape, with a default.
import torch

table = {(2048, 2048, 512): 1, (1024, 4096, 256): 2}


def custom_kernel(data):
    a, b, c = data
    parts = table.get((len(a), b.shape[1], a.shape[1]), 1)
    for left, out in zip(a.chunk(parts), c.chunk(parts)):
        torch.mm(left, b, out=out)
    return c
