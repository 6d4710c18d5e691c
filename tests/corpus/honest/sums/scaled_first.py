# expect: accept
# problem: mean
# A product with a vector of 1 / n, as on matrix units.
import torch

ones = {}


def custom_kernel(data):
    x, out = data
    n = x.shape[1]
    if n not in ones:
        ones[n] = torch.full((n,), 1 / n)
    return torch.mv(x, ones[n], out=out)
