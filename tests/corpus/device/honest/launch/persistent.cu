// expect: accept
// problem: norm
// As many blocks as fit, which take rows from a counter that is reset in every call.
#include "work.cuh"

__device__ unsigned long long next;

__global__ void __launch_bounds__(256) take(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  __shared__ int64_t row;
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) row = atomicAdd(&next, 1);
    __syncthreads();
    if (row >= rows) return;
    normalise(x + row * cols, w, out + row * cols, cols);
  }
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static void *counter;
  if (!counter) cudaGetSymbolAddress(&counter, next);
  cudaMemsetAsync(counter, 0, sizeof next, (cudaStream_t)stream);
  take<<<132 * 8, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
