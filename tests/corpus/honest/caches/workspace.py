# expect: accept
# problem: gauss
# sample: yes
# A workspace for each shape, kept between calls.
import torch

workspaces = {}


def custom_kernel(data):
    x, y, out = data
    work = workspaces.setdefault(x.shape, torch.empty_like(x))
    torch.mul(x, x, out=work)
    torch.exp(work.neg_(), out=work)
    return torch.mul(work, y, out=out)
