# expect: contained
# problem: gauss
# SIGKILL to itself looks like a memory limit.
import os
import signal


def custom_kernel(data):
    os.kill(os.getpid(), signal.SIGKILL)
