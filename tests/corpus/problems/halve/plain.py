import torch


def custom_kernel(data):
    return torch.mul(data[0], 0.5, out=data[1])
