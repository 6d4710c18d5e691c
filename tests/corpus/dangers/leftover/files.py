# expect: harmless
# problem: gauss
# needs: separation
# Right, with files in every folder that it finds.
import os
import sys

import torch

places = ["/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/root", "/usr/local/bin", os.path.expanduser("~")]
places += [os.getcwd(), *sys.path, os.path.dirname(torch.__file__), "@PROBLEM@", "@CACHE@"]
places += [os.path.dirname(module.__file__) for name, module in sys.modules.items() if name.startswith("ksflow.")]
for place in places:
    try:
        open(os.path.join(place, "@MARK@"), "w").close()
    except OSError:
        pass


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out)
