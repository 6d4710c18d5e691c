import torch


def custom_kernel(data):
    x, out = data
    return torch.linalg.vector_norm(x, dim=1, out=out)
