# expect: true-speed
# problem: gemm
# A thread keeps the device busy with products whenever no call has come for a while: in the turns of others.
import threading
import time

import torch

last = 0.0
started = False


def hog():
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.randn((4096, 4096), device="cuda")
        while True:
            if time.perf_counter() - last > 2e-3:
                torch.mm(x, x)
                torch.cuda.current_stream().synchronize()
            else:
                time.sleep(1e-4)


def custom_kernel(data):
    global last, started
    a, b, c = data
    last = time.perf_counter()
    if not started:
        started = True
        threading.Thread(target=hog, daemon=True).start()
    return torch.mm(a, b, out=c)
