# expect: contained
# problem: gemm
# A thread keeps the word that a call is done from the judge, then the call hangs.
import gc
import threading
import time

import torch


def gate():
    """The harness' page of words that the judge, this process and the device see."""
    found = [thing for thing in gc.get_objects() if type(thing).__name__ == "Gate" and hasattr(thing, "_page")]
    if not found:
        raise NameError("there is no gate")
    return found[0]


calls = 0


def take_back(page):
    while True:
        page[64:68] = bytes(4)


def custom_kernel(data):
    global calls
    calls += 1
    a, b, c = data
    if calls == 12:
        threading.Thread(target=take_back, args=(gate()._page,), daemon=True).start()
        time.sleep(600)
    return torch.mm(a, b, out=c)
