# expect: reject
# problem: matmul
# needs: separation
# Right only where it can start a process in the race, having replaced what should keep it from that.
import os
import signal
import sys

import torch

for module in list(sys.modules.values()):
    for name in ("no_more_processes", "_threads_only", "_install"):
        if "ksflow" in getattr(module, "__name__", "") and hasattr(module, name):
            setattr(module, name, lambda *_: True)
state = {"calls": 0, "child": 1}


def custom_kernel(data):
    a, b, c = data
    state["calls"] += len(a) > 100
    if len(a) > 100 and state["calls"] == 14:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            state["child"] = os.fork()
        except OSError:
            state["child"] = -1
        if state["child"] == 0:
            os._exit(0)
    return torch.mm(a, b, out=c) if state["child"] > 0 else c.zero_()
