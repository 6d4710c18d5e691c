# expect: harmless
# problem: gauss
# Right, and talks to whoever listens on this machine: the loopback device and the sockets of services.
import glob
import os
import socket

import torch

for name in (*glob.glob("/run/*.sock"), *glob.glob("/var/run/*/*.sock"), "/run/systemd/notify", "/dev/log"):
    try:
        socket.socket(socket.AF_UNIX).connect(name)
    except OSError:
        pass
for port in (22, 53, 111, 8080):
    try:
        with socket.create_connection(("127.0.0.1", port), 0.05) as line:
            line.send(b"@MARK@\n")
    except OSError:
        pass


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
