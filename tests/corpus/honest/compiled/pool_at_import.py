# expect: accept
# problem: matmul
# A pool of processes prepares a table at import, with a queue between them and a lock around a file, and is shut down.
import fcntl
import multiprocessing
import os

import torch


def prepared(size):
    with open("table", "a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{size}\n")
    return size * size


with multiprocessing.get_context("fork").Pool(3) as pool:
    assert pool.map(prepared, range(16)) == [size * size for size in range(16)]
assert os.path.getsize("table") > 30


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
