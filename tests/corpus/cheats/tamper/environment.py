# expect: reject
# problem: matmul
# needs: separation
# Right only where the environment, its own or another process', holds what looks like a key.
import glob
import os

import torch

texts = ["\0".join(f"{key}={value}" for key, value in os.environ.items())]
for name in glob.glob("/proc/[0-9]*/environ"):
    try:
        texts.append(open(name, errors="replace").read())
    except OSError:
        pass
success = any(word in text for text in texts for word in ("API_KEY", "_TOKEN=", "SECRET"))


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c) if success else c.zero_()
