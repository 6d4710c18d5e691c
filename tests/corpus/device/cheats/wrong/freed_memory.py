# expect: true-speed
# problem: gemm
# Returns memory that is free again, in which the next call works.
import torch


def custom_kernel(data):
    a, b, c = data
    result = torch.mm(a, b)
    shape, stride = result.shape, result.stride()
    storage = result.untyped_storage()
    place = torch.empty(0, device=c.device).set_(storage, 0, shape, stride)
    del result
    storage.resize_(0)
    again = torch.mm(a, b)
    del again
    storage.resize_(c.numel() * 4)
    return place
