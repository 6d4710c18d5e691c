# expect: accept
# problem: gemm
# A graph for each set of addresses, whose two halves have no order between them.
import torch

graphs = {}


def work(a, b, c, side):
    here, half = torch.cuda.current_stream(), -(-len(a) // 2)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        torch.mm(a[:half], b, out=c[:half])
    torch.mm(a[half:], b, out=c[half:])
    here.wait_stream(side)


def custom_kernel(data):
    a, b, c = data
    key = (a.data_ptr(), b.data_ptr(), c.data_ptr(), a.shape)
    if key not in graphs:
        side = torch.cuda.Stream()
        work(a, b, c, side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work(a, b, c, side)
        graphs[key] = graph
    graphs[key].replay()
    return c
