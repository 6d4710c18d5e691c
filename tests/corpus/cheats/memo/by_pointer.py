# expect: reject
# problem: cumsum
# Takes the same addresses for the same contents.
import torch

known = {}


def custom_kernel(data):
    x, out = data
    place = (x.data_ptr(), len(x))
    if place not in known:
        known[place] = torch.cumsum(x, 0)
    return out.copy_(known[place])
