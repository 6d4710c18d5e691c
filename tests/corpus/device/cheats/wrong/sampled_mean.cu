// expect: reject
// problem: norm
// Takes the mean over every second element of long rows.
#include "work.cuh"

__global__ void __launch_bounds__(256) sampled(const float *x, const float *w, float *out, int64_t cols) {
  x += blockIdx.x * cols, out += blockIdx.x * cols;
  int64_t step = cols > 2000 ? 2 : 1;
  __shared__ float parts[8];
  float sum = 0;
  for (int64_t j = threadIdx.x * step; j < cols; j += 256 * step) sum += x[j] * x[j];
  for (int s = 16; s; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 8; ++i) sum += parts[i];
  float scale = rsqrtf(sum * step / cols + 1e-6f);
  for (int64_t j = threadIdx.x; j < cols; j += 256) out[j] = x[j] * scale * w[j];
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  sampled<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, cols);
}
