# expect: contained
# problem: gauss
# Closes all descriptors, the judge's socket included, and goes on.
import os
import time


def custom_kernel(data):
    os.closerange(0, 65536)
    time.sleep(1)
    return data[2]
