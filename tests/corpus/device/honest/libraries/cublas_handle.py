# expect: accept
# problem: gemm
# The library's product by a handle of the kernel's own, on the current stream.
import ctypes

import torch

torch.cuda.current_blas_handle()  # has torch load the library
name = next(line.split()[-1] for line in open("/proc/self/maps") if "/libcublas.so" in line)
cublas = ctypes.CDLL(name)
handle = ctypes.c_void_p()
if cublas.cublasCreate_v2(ctypes.byref(handle)):
    raise RuntimeError("cublasCreate failed")
one, zero = ctypes.c_float(1), ctypes.c_float(0)


def custom_kernel(data):
    a, b, c = data
    (m, k), n = a.shape, b.shape[1]
    cublas.cublasSetStream_v2(handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (b, a, c)]
    status = cublas.cublasSgemm_v2(
        *(handle, 0, 0, n, m, k, ctypes.byref(one), pointers[0], n, pointers[1], k, ctypes.byref(zero), pointers[2], n)
    )
    if status:
        raise RuntimeError(f"cublasSgemm: {status}")
    return c
