# expect: accept
# problem: gemm
# Three quarters of the rows on one new stream and a quarter on another, both joined before the call returns.
import torch

streams = []


def custom_kernel(data):
    a, b, c = data
    if not streams:
        streams.extend(torch.cuda.Stream() for _ in range(2))
    here, cut = torch.cuda.current_stream(), -(-len(a) * 3 // 4)
    for stream, rows in zip(streams, (slice(0, cut), slice(cut, None))):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            torch.mm(a[rows], b, out=c[rows])
        here.wait_stream(stream)
    return c
