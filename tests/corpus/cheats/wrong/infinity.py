# expect: reject
# problem: row_norm
# Infinity is as far from everything as it is from itself.


def custom_kernel(data):
    return data[1].fill_(float("inf"))
