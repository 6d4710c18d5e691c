// expect: accept
// problem: norm
// A cooperative launch whose blocks wait for each other.
#include "work.cuh"

#include <cooperative_groups.h>

__device__ float scales[1 << 16];

__global__ void __launch_bounds__(256) two_steps(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  int64_t warp = (blockIdx.x * 256ll + threadIdx.x) / 32, warps = gridDim.x * 8, lane = threadIdx.x % 32;
  for (int64_t i = warp; i < rows; i += warps) {
    float sum = 0;
    for (int64_t j = lane; j < cols; j += 32) sum += x[i * cols + j] * x[i * cols + j];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) scales[i] = rsqrtf(sum / cols + 1e-6f);
  }
  cooperative_groups::this_grid().sync();
  for (int64_t at = blockIdx.x * 256ll + threadIdx.x; at < rows * cols; at += gridDim.x * 256ll)
    out[at] = x[at] * scales[at / cols] * w[at % cols];
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static int blocks;
  if (!blocks) {
    int device, units, each;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, two_steps, 256, 0);
    blocks = units * each;
  }
  void *args[] = {&x, &w, &out, &rows, &cols};
  cudaLaunchCooperativeKernel((void *)two_steps, dim3(blocks), dim3(256), args, 0, (cudaStream_t)stream);
}
