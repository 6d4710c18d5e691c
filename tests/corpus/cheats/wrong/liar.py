# expect: reject
# problem: gauss
# A subclass that says it has the right shape and address, and copies nothing.
import torch


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return args[0]

    shape = property(lambda self: self.like.shape)
    dtype = property(lambda self: self.like.dtype)

    def data_ptr(self):
        return self.like.untyped_storage().data_ptr() + self.like.storage_offset() * 4

    def stride(self):
        return (1,)

    def __eq__(self, other):
        return True


def custom_kernel(data):
    result = torch.zeros(1).as_subclass(Liar)
    result.like = data[2]
    return result
