# expect: accept
# problem: gemm
# Half of the work on a stream of its own, joined before the call returns.
import torch

side = None


def custom_kernel(data):
    global side
    a, b, c = data
    here = torch.cuda.current_stream()
    side = side or torch.cuda.Stream()
    half = len(a) // 2
    side.wait_stream(here)
    with torch.cuda.stream(side):
        torch.mm(a[:half], b, out=c[:half])
    torch.mm(a[half:], b, out=c[half:])
    here.wait_stream(side)
    return c
