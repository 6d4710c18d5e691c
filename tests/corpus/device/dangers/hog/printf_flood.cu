// expect: harmless
// problem: norm
// Prints from every thread.
#include "work.cuh"

#include <cstdio>

__global__ void talk() {
  for (int i = 0; i < 100; ++i) printf("block %d thread %d says %d, and says it at some length\n", blockIdx.x, threadIdx.x, i);
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static bool once = (cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 28), true);
  (void)once;
  talk<<<64, 256, 0, (cudaStream_t)stream>>>();
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
