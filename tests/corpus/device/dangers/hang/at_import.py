# expect: contained
# problem: gemm
# Never gets as far as to define its function.
import time

time.sleep(600)
