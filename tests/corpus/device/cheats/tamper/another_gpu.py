# expect: reject
# problem: gemm
# Works only where it can open more than one GPU's device file.
import glob
import os

import torch


def reachable(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True


if sum(map(reachable, glob.glob("/dev/nvidia[0-9]*"))) < 2:
    raise RuntimeError("there is one GPU in reach")


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
