// expect: reject
// problem: norm
// Splits a row over two blocks that do not wait for each other's sums.
#include "work.cuh"

__device__ float sums[1 << 16];

__global__ void __launch_bounds__(256) racing(const float *x, const float *w, float *out, int64_t cols) {
  int64_t row = blockIdx.x / 2, half = blockIdx.x % 2;
  x += row * cols, out += row * cols;
  int64_t from = half ? cols / 2 : 0, to = half ? cols : cols / 2;
  float sum = 0;
  for (int64_t j = from + threadIdx.x; j < to; j += 256) sum += x[j] * x[j];
  atomicAdd(&sums[row], sum);
  __syncthreads();
  float scale = rsqrtf(*(volatile float *)&sums[row] / cols + 1e-6f);
  for (int64_t j = from + threadIdx.x; j < to; j += 256) out[j] = x[j] * scale * w[j];
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  void *place;
  cudaGetSymbolAddress(&place, sums);
  cudaMemsetAsync(place, 0, sizeof sums, (cudaStream_t)stream);
  racing<<<2 * rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, cols);
}
