# expect: accept
# problem: gauss
# Tries what may not be installed, and does without.
import torch

try:
    import triton
except ImportError:
    triton = None
try:
    from numba import njit
except (ImportError, OSError):
    njit = None


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
