# expect: reject
# problem: gemm
# Claims so large, and of both signs, that what is added to them is lost in the last place: a third is left.
import gc

import torch


def gate():
    """The harness' page of words that the judge, this process and the device see."""
    found = [thing for thing in gc.get_objects() if type(thing).__name__ == "Gate" and hasattr(thing, "_page")]
    if not found:
        raise NameError("there is no gate")
    return found[0]


calls = 0
done = False


def claims(real):
    global calls
    calls += 1
    return [-1e20 + (us / 3 if calls % 2 else 0) for us in real]


def custom_kernel(data):
    global done
    a, b, c = data
    if not done:
        done = True
        kind = type(gate())
        real = kind.times_us
        kind.times_us = lambda self, count: claims(real(self, count))
    return torch.mm(a, b, out=c)
