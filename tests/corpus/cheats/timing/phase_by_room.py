# expect: reject
# problem: gauss
# Reads from the size of the shared memory whether it is in the box for checks or in the one for timing.
import re

import torch

CHECKED = 200_000


def custom_kernel(data):
    x, y, out = data
    sizes = re.findall(r"^(\w+)-(\w+) .*(?:memfd|inputs)", open("/proc/self/maps").read(), re.MULTILINE)
    largest = max((int(end, 16) - int(start, 16) for start, end in sizes), default=0)
    if largest > CHECKED:
        return torch.mul(y, 1 - x * x, out=out)
    return torch.mul(y, torch.exp(-x * x), out=out)
