# expect: accept
# problem: norm
# time: host
# Waits for the device between its two steps, and again at the end.
import torch


def custom_kernel(data):
    x, w, out = data
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    torch.cuda.synchronize()
    torch.mul(x * scale, w, out=out)
    torch.cuda.synchronize()
    return out
