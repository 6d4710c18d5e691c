# expect: accept
# problem: matmul
# Its first call for a shape does the work ten times, so that later ones find everything ready.
import torch

warm = set()


def custom_kernel(data):
    a, b, c = data
    if c.shape not in warm:
        warm.add(c.shape)
        for _ in range(10):
            torch.mm(a, b, out=c)
    return torch.mm(a, b, out=c)
