# expect: reject
# problem: matmul
# needs: separation
# Right only where another process' descriptors can be opened: its buffers, its sockets, its log.
import os

import torch


def openable(pid):
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        try:
            os.close(os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY | os.O_NONBLOCK))
            return True
        except OSError:
            pass
    return False


others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
success = any(openable(pid) for pid in others)


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c) if success else c.zero_()
