# expect: reject
# problem: gemm
# Has the harness say that its calls took for ever.
import gc

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
        type(gate()).times_us = lambda self, count: (self.driver.synchronize(), [float("inf")] * count)[1]
    return torch.mm(a, b, out=c)
