# expect: accept
# problem: gauss
# Starts a program at import and never asks how it ended.
import os
import subprocess

import torch

version = subprocess.Popen(["gcc", "--version"], stdout=subprocess.DEVNULL)
if os.fork() == 0:
    os._exit(0)


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
