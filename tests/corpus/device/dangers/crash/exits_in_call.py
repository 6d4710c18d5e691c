# expect: contained
# problem: gemm
# Leaves in the middle of a call.
import os


def custom_kernel(data):
    os._exit(0)
