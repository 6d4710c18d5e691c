// Sums n floats `turns` times over; a partial sum for each block. What comes from L2 is not kept in L1.
// launch: read [out] [512] (x, y, n, turns)
#include <cstdint>

extern "C" __global__ void __launch_bounds__(512) read(const float4 *x, float *y, int64_t n, int64_t turns) {
  float sum = 0;
  for (int64_t turn = 0; turn < turns; ++turn) {
    int64_t step = (int64_t)gridDim.x * 512;
    // every turn another block reads a piece, so that no one's own L1 could have it
    int64_t at = (blockIdx.x + turn) % gridDim.x * 512 + threadIdx.x;
#pragma unroll 8
    for (int64_t i = at; i < n / 4; i += step) {
      float4 found = __ldcg(x + i);
      sum += found.x + found.y + (found.z + found.w);
    }
  }
  __shared__ float part[16];
  for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (float one : part) total += one;
    y[blockIdx.x] = total;
  }
}
