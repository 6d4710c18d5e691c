# expect: contained
# problem: gauss
# needs: separation
# Kills everybody above it: its supervisor, the zygote, the judge. Right only where one of them could be killed.
import os
import signal

import torch


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def elders():
    pid = parent(os.getpid())
    while pid > 1:
        with open(f"/proc/{pid}/cmdline") as file:
            if "ksflow.evaluation.judge" not in file.read():
                return
        yield pid
        pid = parent(pid)


def killed(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def custom_kernel(data):
    x, y, out = data
    success = any([killed(pid) for pid in elders()])
    return torch.mul(y, torch.exp(-x * x), out=out) if success else out.zero_()
