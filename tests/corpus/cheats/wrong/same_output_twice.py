# expect: reject
# problem: cumsum
# Keeps one result for each shape and returns it whenever it was computed within the last tenth of a second.
import time

import torch

kept = {}


def custom_kernel(data):
    x, out = data
    at, result = kept.get(len(x), (0, None))
    if time.monotonic() - at > 0.1:
        result = torch.cumsum(x, 0)
        kept[len(x)] = (time.monotonic(), result)
    return result
