# expect: harmless
# problem: gauss
# Each of a few children stays below the limit of one process; together they are above it.
import os
import time

open("/proc/self/comm", "w").write("@MARK@")


def custom_kernel(data):
    for _ in range(5):
        if os.fork() == 0:
            held = bytearray(400 << 20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(60)
    time.sleep(2)
    return data[2]
