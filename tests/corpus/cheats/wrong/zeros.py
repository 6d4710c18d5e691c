# expect: reject
# problem: cumsum
# Leaves zeros, which a constant tolerance takes for small values.


def custom_kernel(data):
    return data[1].zero_()
