# expect: reject
# problem: gauss
# needs: separation
# Right only where it could plant code that later processes load. Takes its plants away again.
import os
import site
import sys

import torch

folders = [*sys.path, *site.getsitepackages(), os.path.dirname(torch.__file__), os.path.dirname(os.__file__)]
folders += [os.path.dirname(module.__file__) for name, module in sys.modules.items() if name.startswith("ksflow.")]
names = [os.path.join(folder, f"@MARK@{end}") for folder in set(folders) for end in (".pth", ".py")]
names = [name for name in names if not name.startswith(os.getcwd())] + ["/etc/@MARK@.so.preload", "/lib/@MARK@.so"]


def planted(name):
    try:
        open(name, "x").close()
        os.remove(name)
    except OSError:
        return False
    return True


success = any([planted(name) for name in names])


def custom_kernel(data):
    x, y, out = data
    return torch.mul(y, torch.exp(-x * x), out=out) if success else out.zero_()
