# expect: accept
# problem: matmul
# sample: yes
# A transposed view as its result, which somebody has to copy.
import torch


def custom_kernel(data):
    a, b, _ = data
    return torch.mm(b.t(), a.t()).t()
