# expect: contained
# problem: gemm
# The device is done, and the process never says so.
import gc
import time

import torch


def gate():
    """The harness' page of words that the judge, this process and the device see."""
    found = [thing for thing in gc.get_objects() if type(thing).__name__ == "Gate" and hasattr(thing, "_page")]
    if not found:
        raise NameError("there is no gate")
    return found[0]


done = False


def custom_kernel(data):
    global done
    a, b, c = data
    if not done:
        done = True
        type(gate()).times_us = lambda self, count: time.sleep(600)
    return torch.mm(a, b, out=c)
