# expect: harmless
# problem: gauss
# Right, with a child that listens on the loopback device and under an abstract name.
import os
import socket
import time

import torch

if os.fork() == 0:
    os.setsid()
    open("/proc/self/comm", "w").write("@MARK@")
    held = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", int("@PORT@"))), (socket.AF_UNIX, "\0@MARK@")):
        try:
            server = socket.socket(family)
            server.bind(address)
            server.listen()
            held.append(server)
        except OSError:
            pass
    time.sleep(600)


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
