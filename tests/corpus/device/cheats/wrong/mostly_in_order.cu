// expect: race
// problem: norm
// honest: problems/norm/plain.py
// The rows of a block share one array and no barrier lies between them: right unless a warp is a row ahead.
#include "work.cuh"

__global__ void __launch_bounds__(256) mostly(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  __shared__ float parts[8];
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    float sum = 0;
    for (int64_t j = threadIdx.x; j < cols; j += 256) sum += x[i * cols + j] * x[i * cols + j];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int p = 0; p < 8; ++p) sum += parts[p];
    float scale = rsqrtf(sum / cols + 1e-6f);
    for (int64_t j = threadIdx.x; j < cols; j += 256) out[i * cols + j] = x[i * cols + j] * scale * w[j];
  }
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  mostly<<<(rows + 3) / 4, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
