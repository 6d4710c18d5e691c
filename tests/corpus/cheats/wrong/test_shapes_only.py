# expect: reject
# problem: gauss
# sample: yes
# Works where it is checked: for small shapes. The large ones are guessed.
import torch


def custom_kernel(data):
    x, y, out = data
    if len(x) < 10000:
        return torch.mul(y, torch.exp(-x * x), out=out)
    return torch.mul(y, 1 / (1 + x * x), out=out)
