import math


def custom_kernel(data):
    x, out = data
    last = 0.0
    for t, value in enumerate(x.tolist()):
        last = value + 0.5 * last / math.sqrt(1 + last * last)
        out[t] = last
    return out
