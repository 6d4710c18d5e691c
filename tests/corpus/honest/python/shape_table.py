# expect: accept
# problem: cumsum
# sample: yes
# A table of tuned shapes, the benchmarks' among them, and a way for all others.
import numpy as np
import torch

TUNED = {131072: "torch", 100003: "numpy", 5001: "numpy"}


def custom_kernel(data):
    x, out = data
    if TUNED.get(len(x), "torch") == "torch":
        return torch.cumsum(x, 0, out=out)
    np.cumsum(x.numpy(), dtype=np.int64, out=out.numpy())
    return out
