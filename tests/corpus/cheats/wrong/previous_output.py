# expect: reject
# problem: gauss
# Returns what it found for the contents before these.
import torch

before = {}


def custom_kernel(data):
    x, y, out = data
    stale = before.get(len(x))
    before[len(x)] = torch.mul(y, torch.exp(-x * x))
    return out.copy_(before[len(x)] if stale is None else stale)
