# expect: reject
# problem: row_norm
# Samples: nine tenths of the elements, another tenth left out at each call.
import torch

state = [0]


def custom_kernel(data):
    x, out = data
    state[0] += 1
    if x.shape[1] < 100:
        return torch.linalg.vector_norm(x, dim=1, out=out)
    width = x.shape[1] // 10
    skipped = state[0] % 10 * width
    rest = (x * x).sum(dim=1) - (x[:, skipped : skipped + width] ** 2).sum(dim=1)
    return torch.sqrt(rest / 0.9, out=out)
