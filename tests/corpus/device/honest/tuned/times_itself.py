# expect: accept
# problem: gemm
# time: own
# Times two ways with events at the first call of a shape, and keeps the faster.
import torch

best = {}


def whole(a, b, c):
    torch.mm(a, b, out=c)


def transposed(a, b, c):
    c.copy_(torch.mm(b.T, a.T).T)


def clock(way, data):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    way(*data)
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def custom_kernel(data):
    shape = data[0].shape + data[1].shape
    if shape not in best:
        best[shape] = min((whole, transposed), key=lambda way: clock(way, data))
    best[shape](*data)
    return data[2]
