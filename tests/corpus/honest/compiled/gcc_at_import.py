# expect: accept
# problem: gauss
# sample: yes
# Compiles C when it is imported and calls it through ctypes.
import ctypes
import os
import subprocess
import tempfile

SOURCE = """
#include <math.h>
void gauss(const float *x, const float *y, float *out, long n) {
  for (long i = 0; i < n; i++) out[i] = y[i] * expf(-x[i] * x[i]);
}
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "gauss.c"), os.path.join(folder, "gauss.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["gcc", "-O3", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
gauss = ctypes.CDLL(library).gauss


def custom_kernel(data):
    x, y, out = data
    gauss(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in data), ctypes.c_long(len(x)))
    return out
