# expect: accept
# problem: cumsum
# A server process that idles, as a compile server of a library does, and that nobody asks for anything later.
import subprocess
import sys

import torch

server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def custom_kernel(data):
    return torch.cumsum(data[0], 0, out=data[1])
