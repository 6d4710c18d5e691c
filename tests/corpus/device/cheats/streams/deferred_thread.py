# expect: true-speed
# problem: gemm
# A thread computes some time after the call has returned.
import threading

import torch


def later(a, b, c, ready):
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_event(ready)
        torch.mm(a, b, out=c)


def custom_kernel(data):
    a, b, c = data
    ready = torch.cuda.Event()
    ready.record()
    threading.Timer(0.0005, later, (a, b, c, ready)).start()
    return c
