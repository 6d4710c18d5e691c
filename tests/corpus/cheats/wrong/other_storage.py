# expect: reject
# problem: gauss
# Lets the preallocated output point to an input and returns the very object that was asked for.


def custom_kernel(data):
    data[2].set_(data[1])
    return data[2]
