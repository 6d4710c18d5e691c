# expect: accept
# problem: gauss
# Uses the output as its workspace, more than once, with values in it that are no results.


def custom_kernel(data):
    x, y, out = data
    out.fill_(float("nan"))
    out.copy_(x).pow_(2).neg_()
    return out.exp_().mul_(y)
