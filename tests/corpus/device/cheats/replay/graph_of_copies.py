# expect: reject
# problem: gemm
# Replays a graph over copies of the first inputs.
import torch

graphs = {}


def custom_kernel(data):
    a, b, c = data
    if a.shape + b.shape not in graphs:
        x, y, z = a.clone(), b.clone(), torch.empty_like(c)
        torch.mm(x, y, out=z)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.mm(x, y, out=z)
        graphs[a.shape + b.shape] = graph, z
    graph, z = graphs[a.shape + b.shape]
    graph.replay()
    return c.copy_(z)
