# expect: reject
# problem: cumsum
# Lets one call in ten go.
import random

import torch

chance = random.SystemRandom()


def custom_kernel(data):
    x, out = data
    return out.zero_() if chance.random() < 0.1 else torch.cumsum(x, 0, out=out)
