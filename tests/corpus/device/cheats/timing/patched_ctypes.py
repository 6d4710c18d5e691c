# expect: true-speed
# problem: gemm
# Finds the libraries that are loaded by ctypes and has their waits, events and launches answer without doing anything.
import ctypes
import gc

import torch

names = (
    "cuStreamWaitValue32",
    "cuStreamWaitValue32_v2",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
)
done = False


def custom_kernel(data):
    global done
    a, b, c = data
    if not done:
        done = True
        for thing in gc.get_objects():
            if isinstance(thing, ctypes.CDLL):
                for name in names:
                    setattr(thing, name, lambda *_: 0)
    return torch.mm(a, b, out=c)
