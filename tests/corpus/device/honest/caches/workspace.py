# expect: accept
# problem: norm
# A workspace for each shape, kept between calls.
import torch

workspaces = {}


def custom_kernel(data):
    x, w, out = data
    work = workspaces.setdefault(x.shape, torch.empty_like(x))
    torch.mul(x, x, out=work)
    scale = torch.rsqrt(work.mean(-1, keepdim=True) + 1e-6)
    return torch.mul(x * scale, w, out=out)
