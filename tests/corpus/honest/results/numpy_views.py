# expect: accept
# problem: cumsum
# Works on NumPy's views of the tensors.
import numpy as np


def custom_kernel(data):
    x, out = data
    np.cumsum(x.numpy(), dtype=np.int64, out=out.numpy())
    return out
