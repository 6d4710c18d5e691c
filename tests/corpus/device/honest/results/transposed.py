# expect: accept
# problem: gemm
# Returns a view that is not contiguous.
import torch


def custom_kernel(data):
    a, b, _ = data
    return torch.mm(b.T, a.T).T
