# expect: reject
# problem: matmul
# One row with stride 0 has the shape of all of them.


def custom_kernel(data):
    a, b, c = data
    return (a[:1] @ b).expand(c.shape)
