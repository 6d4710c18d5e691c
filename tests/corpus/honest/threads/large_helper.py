# expect: accept
# problem: matmul
# runs: 3
# A helper process with 600 MB of its own prepares something at import, and is still there, idle, when times are taken.
import os

import torch

ready, said = os.pipe()
if os.fork() == 0:
    kept = bytearray(b"\1") * (600 << 20)
    os.write(said, b"1")
    os.read(os.pipe()[0], 1)
os.read(ready, 1)


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
