# expect: accept
# problem: cumsum
# Compiles at its first call, in the folder that it finds itself in.
import ctypes
import os
import subprocess
from functools import cache

SOURCE = """
void sums(const int *x, long *out, long n) {
  long sum = 0;
  for (long i = 0; i < n; i++) out[i] = sum += x[i];
}
"""


@cache
def library():
    subprocess.run(
        ["gcc", "-O3", "-x", "c", "-", "-shared", "-fPIC", "-o", "sums.so"], input=SOURCE, text=True, check=True
    )
    return ctypes.CDLL(os.path.abspath("sums.so"))


def custom_kernel(data):
    x, out = data
    library().sums(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(len(x)))
    return out
