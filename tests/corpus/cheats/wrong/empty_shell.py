# expect: reject
# problem: gauss
# A tensor without memory has a shape and a type, too.
import torch


def custom_kernel(data):
    return torch.empty_like(data[2], device="meta")
