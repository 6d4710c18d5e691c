# expect: accept
# problem: gauss
# A list with one tensor in it, made from an array.
import numpy as np
import torch


def custom_kernel(data):
    x, y, _ = (tensor.numpy() for tensor in data)
    return [torch.from_numpy(y * np.exp(-x * x))]
