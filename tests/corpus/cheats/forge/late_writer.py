# expect: reject
# problem: matmul
# Returns large results at once; a thread fills them in while the judge is busy with the answer.
import threading
import time

import torch


def late(a, b, c):
    time.sleep(0.0005)
    torch.mm(a, b, out=c)


def custom_kernel(data):
    a, b, c = data
    if len(a) < 100:
        return torch.mm(a, b, out=c)
    threading.Thread(target=late, args=data).start()
    return c
