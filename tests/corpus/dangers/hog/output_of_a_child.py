# expect: harmless
# problem: gauss
# Right, while a child writes to the log without end, and after the parent's end, too.
import os

import torch

open("/proc/self/comm", "w").write("@MARK@")
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            os.write(1, b"x" * 60000)
        except OSError:
            os._exit(0)


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
