# expect: true-speed
# problem: gauss
# Makes every clock of its own process stand still.
import time

import torch

now, now_ns = time.monotonic(), time.monotonic_ns()
for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
    setattr(time, name, lambda: now)
    setattr(time, f"{name}_ns", lambda: now_ns)
time.clock_gettime = lambda _: now


def custom_kernel(data):
    x, y, out = data
    torch.mul(x, x, out=out)
    return out.neg_().exp_().mul_(y)
