# expect: reject
# problem: gauss
# Computes large results in the destructor of an object that dies after the answer.
import torch


def gauss(x, y, out):
    return torch.mul(y, torch.exp(-x * x), out=out)


class Late:
    def __init__(self, data):
        self.data = data

    def __del__(self):
        gauss(*self.data)


kept = []


def custom_kernel(data):
    if len(data[0]) < 10000:
        return gauss(*data)
    kept[:] = [Late(data)]
    return data[2]
