# expect: true-speed
# problem: gemm
# Waits for the inputs, works and waits again inside of the call, so that events around it see an idle stream.
import torch

side = None


def custom_kernel(data):
    global side
    a, b, c = data
    side = side or torch.cuda.Stream()
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        torch.mm(a, b, out=c)
    side.synchronize()
    return c
