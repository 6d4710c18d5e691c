# expect: reject
# problem: gemm
# Hopes that memory which is not written still holds a right answer.
import torch


def custom_kernel(data):
    return torch.empty_like(data[2])
