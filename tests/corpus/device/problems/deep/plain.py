import torch


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
