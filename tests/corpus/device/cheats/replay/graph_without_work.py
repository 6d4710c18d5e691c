# expect: reject
# problem: gemm
# Computes once for each address; afterwards a graph copies that result.
import torch

graphs = {}


def custom_kernel(data):
    a, b, c = data
    if c.data_ptr() not in graphs:
        found = torch.mm(a, b)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c.copy_(found)
        graphs[c.data_ptr()] = graph, found
    graphs[c.data_ptr()][0].replay()
    return c
