import ctypes
import os
import subprocess


def library(source):
    made = os.path.abspath("norms.so")
    subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", made, source, "-lm"], check=True)
    return ctypes.CDLL(made)
