# expect: accept
# problem: gauss
# Names and comments in other scripts: σ, 核, ядро.
import torch

σ = 1.0


def 核(ξ, η, out):
    """y·e^(−ξ²/σ)"""
    return torch.mul(η, torch.exp(-ξ * ξ / σ), out=out)


def custom_kernel(data):
    return 核(*data)
