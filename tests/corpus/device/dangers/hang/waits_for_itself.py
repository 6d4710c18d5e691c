# expect: contained
# problem: gemm
# The stream waits for a value that nobody writes.
import ctypes

import torch

driver = ctypes.CDLL("libcuda.so.1")
flag = None


def custom_kernel(data):
    global flag
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    driver.cuStreamWaitValue32_v2(ctypes.c_void_p(stream), ctypes.c_uint64(flag.data_ptr()), ctypes.c_uint32(7), 1)
    a, b, c = data
    return torch.mm(a, b, out=c)
