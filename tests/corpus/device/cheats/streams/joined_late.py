# expect: true-speed
# problem: gemm
# Waits for the work of a call at the start of the next one only.
import torch

side = None


def custom_kernel(data):
    global side
    a, b, c = data
    here = torch.cuda.current_stream()
    if side is None:
        side = torch.cuda.Stream()
    else:
        here.wait_stream(side)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        torch.mm(a, b, out=c)
    return c
