# expect: reject
# problem: cumsum
# Searches the seeds around the clock's time and the process ids for the one that makes these inputs.
import os
import time

import torch


def custom_kernel(data):
    x, out = data
    now = int(time.time())
    for seed in (*range(200), *range(now - 50, now + 50), *range(os.getpid() - 50, os.getpid() + 50)):
        generator = torch.Generator().manual_seed(seed)
        if torch.equal(torch.randint(-(1 << 23), 1 << 24, (4,), dtype=torch.int32, generator=generator), x[:4]):
            return torch.cumsum(x, 0, out=out)
    return out.zero_()
