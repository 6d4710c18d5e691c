# expect: accept
# problem: norm
# New tensors for every step in every call.
import torch


def custom_kernel(data):
    x, w, _ = data
    work = torch.empty_like(x)
    torch.mul(x, x, out=work)
    scale = torch.rsqrt(work.mean(-1, keepdim=True) + 1e-6)
    return (x * scale * w).clone()
