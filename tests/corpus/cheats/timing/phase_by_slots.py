# expect: reject
# problem: matmul
# Takes calls that come at the same address as the last one for checks, others for timing.
import torch

last = [0]


def custom_kernel(data):
    a, b, c = data
    timed = len(a) > 100 and last[0] not in (0, a.data_ptr())
    last[0] = a.data_ptr()
    return c.zero_() if timed else torch.mm(a, b, out=c)
