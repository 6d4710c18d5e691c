# expect: contained
# problem: gauss
# Each call is short; together they take for ever.
import time

import torch


def custom_kernel(data):
    x, y, out = data
    time.sleep(2.5)
    return torch.mul(y, torch.exp(-x * x), out=out)
