# expect: reject
# problem: row_norm
# Leaves the conversion to whoever copies the result.


def custom_kernel(data):
    return data[0].half().norm(dim=1)
