# expect: contained
# problem: gemm
# A thread that goes on launching products on the calls' own stream after they have returned.
import threading

import torch

started = False


def launch(stream):
    with torch.cuda.stream(stream):
        x = torch.randn((4096, 4096), device="cuda")
        y = torch.empty_like(x)
        while True:
            torch.mm(x, x, out=y)


def custom_kernel(data):
    global started
    a, b, c = data
    if not started:
        started = True
        threading.Thread(target=launch, args=(torch.cuda.current_stream(),), daemon=True).start()
    return torch.mm(a, b, out=c)
