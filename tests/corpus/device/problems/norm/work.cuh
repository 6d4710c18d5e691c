#include <cstdint>
#include <cuda_runtime.h>

// One row by one block of 256 threads.
__device__ void normalise(const float *x, const float *w, float *out, int64_t cols) {
  __shared__ float parts[8];
  float sum = 0;
  for (int64_t j = threadIdx.x; j < cols; j += 256) sum += x[j] * x[j];
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 8; ++i) sum += parts[i];
  float scale = rsqrtf(sum / cols + 1e-6f);
  for (int64_t j = threadIdx.x; j < cols; j += 256) out[j] = x[j] * scale * w[j];
}

extern "C" __global__ void __launch_bounds__(256)
    norm_rows(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) normalise(x + i * cols, w, out + i * cols, cols);
}
