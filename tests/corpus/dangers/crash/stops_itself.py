# expect: contained
# problem: gauss
# A stopped process answers nobody, and no child of it ends.
import os
import signal


def custom_kernel(data):
    os.kill(os.getpid(), signal.SIGSTOP)
