// expect: accept
// problem: norm
// Asks once for more shared memory than a block gets by default, and keeps a row in it.
#include "work.cuh"

__global__ void __launch_bounds__(256) kept(const float *x, const float *w, float *out, int64_t cols) {
  extern __shared__ float row[];
  for (int64_t j = threadIdx.x; j < cols; j += 256) row[j] = x[blockIdx.x * cols + j];
  __syncthreads();
  normalise(row, w, out + blockIdx.x * cols, cols);
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static bool once = (cudaFuncSetAttribute(kept, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 << 10), true);
  (void)once;
  kept<<<rows, 256, cols * sizeof(float), (cudaStream_t)stream>>>(x, w, out, cols);
}
