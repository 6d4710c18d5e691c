# expect: contained
# problem: gauss
# Processes that make processes, each in a session of its own.
import os
import time

open("/proc/self/comm", "w").write("@MARK@")


def custom_kernel(data):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.fork()
            os.setsid()
        except OSError:
            time.sleep(0.01)
