# expect: harmless
# problem: gemm
# Takes all the device's memory that it gets, and keeps it.
import torch

kept = []


def custom_kernel(data):
    a, b, c = data
    size = 1 << 36
    while size > 1 << 22:
        try:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return torch.mm(a, b, out=c)
