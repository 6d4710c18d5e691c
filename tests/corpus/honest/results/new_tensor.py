# expect: accept
# problem: row_norm
# A new tensor as its result; the preallocated one is left alone.
import torch


def custom_kernel(data):
    return torch.linalg.vector_norm(data[0], dim=1)
