# expect: accept
# problem: momentum
# PyTorch's functions that change their argument.
def custom_kernel(data):
    g, m = data
    return m.mul_(0.9).add_(g)
