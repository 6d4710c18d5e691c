import torch


def custom_kernel(data):
    return torch.mean(data[0], dim=1, out=data[1])
