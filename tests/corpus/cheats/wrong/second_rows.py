# expect: reject
# problem: row_norm
# Computes every second row and scales the others from a few of their elements.


def custom_kernel(data):
    x, out = data
    out[::2] = x[::2].norm(dim=1)
    rest = x[1::2, : max(x.shape[1] // 4, 1)]
    out[1::2] = rest.norm(dim=1) * (x.shape[1] / rest.shape[1]) ** 0.5
    return out
