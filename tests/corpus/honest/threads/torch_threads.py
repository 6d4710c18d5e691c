# expect: accept
# problem: matmul
# Says how many threads the library should use.
import os

import torch

os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
