# expect: reject
# problem: gauss
# Punches holes into the shared memory, so that inputs and outputs both read as zeros.
import ctypes
import os

libc = ctypes.CDLL(None)
PUNCH_KEEP = 3


def custom_kernel(data):
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if "memfd" in link:
            libc.fallocate(int(name), PUNCH_KEEP, ctypes.c_long(0), ctypes.c_long(os.fstat(int(name)).st_size))
    return data[2]
