# expect: reject
# problem: matmul
# Takes a row for zeros when it starts small.
import torch


def custom_kernel(data):
    a, b, c = data
    loud = a[:, 0].abs() > 0.05
    c.zero_()
    c[loud] = torch.mm(a[loud], b)
    return c
