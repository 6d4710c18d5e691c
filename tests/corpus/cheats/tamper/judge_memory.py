# expect: reject
# problem: matmul
# sample: yes
# needs: separation
# Right only where the memory of some other process can be read through /proc.
import os

import torch


def readable(pid):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
            start = int(maps.readline().partition("-")[0], 16)
            memory.seek(start)
            return bool(memory.read(16))
    except (OSError, ValueError):
        return False


others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
success = any(readable(pid) for pid in others)


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c) if success else c.zero_()
