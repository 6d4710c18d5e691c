# expect: accept
# problem: cumsum
# Talks while it works, on both streams.
import logging
import sys

import torch

logging.basicConfig(level=logging.INFO)
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls < 50:
        print("call", calls, "with", len(data[0]), "elements")
        print("done", file=sys.stderr)
        logging.info("accept")
    return torch.cumsum(data[0], 0, out=data[1])
