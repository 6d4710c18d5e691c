def custom_kernel(data):
    g, m = data
    return m.mul_(0.9).add_(g)
