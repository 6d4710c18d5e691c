import torch


def custom_kernel(data):
    x, out = data
    return torch.cumsum(x, 0, out=out)
