# expect: true-speed
# problem: gauss
# Leaves processes in other sessions that spin at the highest priority they get, to slow the rival and the judge.
import os
import time

import torch

called = []


def spin():
    os.setsid()
    open("/proc/self/comm", "w").write("@MARK@")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass
    os._exit(0)


for core in range(2):
    if os.fork() == 0:
        try:
            os.sched_setaffinity(0, range(os.cpu_count()))
            os.nice(-5)
        except OSError:
            pass
        spin()


def custom_kernel(data):
    x, y, out = data
    torch.mul(x, x, out=out)
    return out.neg_().exp_().mul_(y)
