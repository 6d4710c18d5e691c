# expect: harmless
# problem: gauss
# Right, after setting its and its parent's limits to nothing.
import os
import resource

import torch

for pid in (os.getppid(), os.getpid()):
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        try:
            resource.prlimit(pid, kind, (0, 0))
        except OSError:
            pass


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
