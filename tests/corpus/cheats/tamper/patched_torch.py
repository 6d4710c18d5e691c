# expect: reject
# problem: gauss
# Replaces the functions that might compare or copy results.
import torch

for owner in (torch, torch.Tensor, torch.testing):
    for name in ("allclose", "equal", "isclose", "assert_close", "all"):
        if hasattr(owner, name):
            setattr(owner, name, lambda *_, **__: True)
torch.Tensor.copy_ = lambda self, *_: self
torch.Tensor.clone = lambda self: self


def custom_kernel(data):
    return data[2] * 0
