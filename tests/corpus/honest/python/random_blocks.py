# expect: accept
# problem: row_norm
# Random numbers decide in which order the blocks are done; seeds are set.
import random

import numpy as np
import torch

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


def custom_kernel(data):
    x, out = data
    starts = list(range(0, len(x), 128))
    random.shuffle(starts)
    for start in starts:
        torch.linalg.vector_norm(x[start : start + 128], dim=1, out=out[start : start + 128])
    return out
