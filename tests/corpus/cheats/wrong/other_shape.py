# expect: reject
# problem: row_norm
# One value that broadcasts over all.


def custom_kernel(data):
    return data[0].norm().reshape(1)
