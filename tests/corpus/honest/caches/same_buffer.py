# expect: accept
# problem: gauss
# Returns the very tensor that it returned last time, with new contents.
import torch

results = {}


def custom_kernel(data):
    x, y, _ = data
    if x.shape not in results:
        results[x.shape] = torch.empty_like(x)
    out = results[x.shape]
    torch.mul(x, x, out=out)
    return out.neg_().exp_().mul_(y)
