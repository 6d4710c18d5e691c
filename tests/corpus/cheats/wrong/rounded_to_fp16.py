# expect: reject
# problem: deep_matmul
# Rounds its inputs to fp16, which has as many digits as TF32, and adds up in float32.
import torch


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a.half().float(), b.half().float(), out=c)
