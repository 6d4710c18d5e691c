# expect: contained
# problem: gauss
# An error whose text has no end in sight.


def custom_kernel(data):
    raise RuntimeError("x\n\0\ud800" * 5_000_000)
