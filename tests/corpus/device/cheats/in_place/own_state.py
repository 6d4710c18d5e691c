# expect: reject
# problem: momentum
# Keeps the momentum of its own calls and overwrites the caller's with it: right in the first call alone.
import torch

_state = {}


def custom_kernel(data):
    g, m = data
    own = _state.setdefault(m.numel(), m.clone())
    own.mul_(0.9).add_(g)
    return m.copy_(own)
