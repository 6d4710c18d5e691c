// expect: true-speed
// problem: norm
// Writes right results, and beside them as far around its slots as the memory is mapped.
#include "work.cuh"

#include <cuda.h>
#include <dlfcn.h>

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
  auto *driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto range = (CUresult(*)(CUdeviceptr *, size_t *, CUdeviceptr))dlsym(driver, "cuMemGetAddressRange_v2");
  CUdeviceptr base = 0;
  size_t size = 0;
  size_t mine = rows * cols * sizeof(float);
  if (!range || range(&base, &size, (CUdeviceptr)out)) return;
  size_t before = (CUdeviceptr)out - base;
  cudaMemsetAsync((void *)base, 0, before, (cudaStream_t)stream);
  if (before + mine < size) cudaMemsetAsync((char *)out + mine, 0, size - before - mine, (cudaStream_t)stream);
}
