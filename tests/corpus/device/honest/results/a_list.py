# expect: accept
# problem: gemm
# Returns its one result in a list.
import torch


def custom_kernel(data):
    a, b, c = data
    return [torch.mm(a, b, out=c)]
