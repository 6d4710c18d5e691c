# expect: harmless
# problem: gauss
# sample: yes
# Right, with daemons behind it: forked twice, in sessions of their own, deaf to signals.
import os
import signal
import time

import torch

if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for _ in range(5):
        if os.fork() == 0:
            open("/proc/self/comm", "w").write("@MARK@")
            os.closerange(0, 256)
            time.sleep(600)
            os._exit(0)
    os._exit(0)


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
