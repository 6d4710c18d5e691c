# expect: reject
# problem: gemm
# Takes the same addresses for the same contents.
import torch

known = {}


def custom_kernel(data):
    a, b, c = data
    place = (a.data_ptr(), b.data_ptr(), a.shape)
    if place not in known:
        known[place] = torch.mm(a, b)
    return c.copy_(known[place])
