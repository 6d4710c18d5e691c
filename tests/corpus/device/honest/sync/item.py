# expect: accept
# problem: norm
# time: host
# Reads a number back to the host in every call.
import torch


def custom_kernel(data):
    x, w, out = data
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    if not torch.isfinite(scale).all().item():
        scale = torch.nan_to_num(scale)
    return torch.mul(x * scale, w, out=out)
