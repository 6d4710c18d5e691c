# expect: accept
# problem: gemm
# Leaves the preallocated output alone and returns a tensor of its own.
import torch


def custom_kernel(data):
    return data[0] @ data[1]
