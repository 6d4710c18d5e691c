# expect: reject
# problem: gauss
# sample: yes
# Shrinks the shared memory under the judge, whose next look at it would be its last.
import os


def custom_kernel(data):
    for name in os.listdir("/proc/self/fd"):
        try:
            if "memfd" in os.readlink(f"/proc/self/fd/{name}"):
                os.ftruncate(int(name), 0)
        except OSError:
            pass
    return data[2]
