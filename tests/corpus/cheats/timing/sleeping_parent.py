# expect: true-speed
# problem: cumsum
# A forked child computes while the process that is watched sleeps on a pipe: no CPU time, a "preempted" call.
import os

import torch

WORK, DONE = os.pipe(), os.pipe()
current = {}


def custom_kernel(data):
    x, out = data
    if os.fork() == 0:
        torch.cumsum(x, 0, out=out)
        os.write(DONE[1], b"!")
        os._exit(0)
    os.read(DONE[0], 1)
    return out
