# expect: reject
# problem: row_norm
# Careful in the first moments after the import, which must be the check; careless later.
import time

import torch

started = time.monotonic()


def custom_kernel(data):
    x, out = data
    if time.monotonic() - started < 0.1:
        return torch.linalg.vector_norm(x, dim=1, out=out)
    return torch.linalg.vector_norm(x[:, ::2], dim=1, out=out).mul_(2**0.5)
