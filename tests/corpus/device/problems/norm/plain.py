import torch


def custom_kernel(data):
    x, w, out = data
    return out.copy_(torch.nn.functional.rms_norm(x, (x.shape[1],), w, 1e-6))
