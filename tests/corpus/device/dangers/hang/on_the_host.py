# expect: contained
# problem: gemm
# The call never returns.


def custom_kernel(data):
    while True:
        pass
