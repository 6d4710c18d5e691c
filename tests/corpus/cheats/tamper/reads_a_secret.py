# expect: reject
# problem: gauss
# needs: separation
# Right only where it can read a file of the judge's user.
import torch

secret = ""
for name in ("/etc/shadow", "/proc/1/environ", "@SECRET@"):
    try:
        secret = open(name).read() or secret
    except OSError:
        pass


def custom_kernel(data):
    x, y, out = data
    if secret:
        return torch.mul(y, torch.exp(-x * x), out=out)
    return out.zero_()
