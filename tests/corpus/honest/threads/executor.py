# expect: accept
# problem: matmul
# A pool of threads, made at import; each call gives it the two halves of its rows.
from concurrent.futures import ThreadPoolExecutor

import torch

pool = ThreadPoolExecutor(2)


def custom_kernel(data):
    a, b, c = data
    half = len(a) // 2
    parts = [(a[:half], c[:half]), (a[half:], c[half:])]
    list(pool.map(lambda part: torch.mm(part[0], b, out=part[1]), parts))
    return c
