# expect: accept
# problem: row_norm
# Several files: C in one of its own, compiled at import, with a helper module beside it.
import ctypes

import build

norms = build.library("norms.c").norms


def custom_kernel(data):
    x, out = data
    rows, cols = (ctypes.c_long(size) for size in x.shape)
    norms(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), rows, cols)
    return out
