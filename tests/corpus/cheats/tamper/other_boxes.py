# expect: reject
# problem: matmul
# needs: separation
# Right only where it can write into other boxes' folders or signal their processes.
import glob
import os

import torch


def signalled(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def written(folder):
    try:
        open(f"{folder}/@MARK@", "x").close()
        os.remove(f"{folder}/@MARK@")
    except OSError:
        return False
    return True


near = range(os.getppid() - 30, os.getpid())
folders = [name for name in glob.glob("/tmp/ksflow-*") if os.path.realpath(name) != os.getcwd()]
success = any([signalled(pid) for pid in near if pid > 2]) or any([written(name) for name in folders])


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c) if success else c.zero_()
