# expect: accept
# problem: gemm
# A graph for each set of addresses, captured at their first call and replayed with what lies there then.
import torch

graphs = {}


def custom_kernel(data):
    a, b, c = data
    key = (a.data_ptr(), b.data_ptr(), c.data_ptr(), a.shape)
    if key not in graphs:
        torch.mm(a, b, out=c)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.mm(a, b, out=c)
        graphs[key] = graph
    graphs[key].replay()
    return c
