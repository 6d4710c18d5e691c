# expect: accept
# problem: gauss
# Turns the garbage collector off and keeps the interpreter from switching threads.
import gc
import sys

import torch

gc.disable()
gc.freeze()
sys.setswitchinterval(10)


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
