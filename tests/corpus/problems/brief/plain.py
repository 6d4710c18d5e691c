import torch


def custom_kernel(data):
    x, y, out = data
    torch.mul(x, x, out=out)
    return out.neg_().exp_().mul_(y)
