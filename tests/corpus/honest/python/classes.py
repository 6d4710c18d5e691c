# expect: accept
# problem: row_norm
# Its own classes, closures and generators around the work, and an object with a destructor.
import torch


class Step:
    def __init__(self, rows):
        self.rows = rows

    def __call__(self, x, out):
        torch.linalg.vector_norm(x[self.rows], dim=1, out=out[self.rows])

    def __del__(self):
        self.rows = None


def steps(count):
    yield from (Step(slice(start, start + 256)) for start in range(0, count, 256))


def custom_kernel(data):
    x, out = data
    for step in steps(len(x)):
        step(x, out)
    return out
