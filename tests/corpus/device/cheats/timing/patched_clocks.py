# expect: true-speed
# problem: gemm
# Makes the process' clocks run a hundred times slower.
import time

import torch

for name in ("perf_counter", "monotonic", "time"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real, start=real(): start + (real() - start) / 100)
for name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real, start=real(): start + (real() - start) // 100)


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
