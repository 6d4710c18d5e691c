// expect: accept
// problem: norm
// Asks for the next row's lines ahead of time.
#include "work.cuh"

__global__ void __launch_bounds__(256) ahead(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  int64_t next = blockIdx.x + 128;
  if (next < rows)
    for (int64_t j = threadIdx.x * 32; j < cols; j += 256 * 32)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(x + next * cols + j));
  normalise(x + blockIdx.x * cols, w, out + blockIdx.x * cols, cols);
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  ahead<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
