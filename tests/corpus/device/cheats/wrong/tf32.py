# expect: reject
# problem: gemm
# Multiplies with the 10 bits of TF32.
import torch

torch.backends.cuda.matmul.allow_tf32 = True


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
