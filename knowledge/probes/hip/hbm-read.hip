// Sums n floats; a partial sum for each work-group.
// launch: read [out] [256] (x, y, n, turns)
#include <hip/hip_runtime.h>

typedef float float4_ __attribute__((ext_vector_type(4)));

extern "C" __global__ void __launch_bounds__(256) read(const float4_ *x, float *y, long n, long turns) {
  __shared__ float part[256];
  float sum = 0;
  for (long turn = 0; turn < turns; ++turn) {
    long at = (blockIdx.x + turn) % gridDim.x * 256 + threadIdx.x;
#pragma unroll 8
    for (long i = at; i < n / 4; i += (long)gridDim.x * 256) {
      float4_ found = x[i];
      sum += found[0] + found[1] + (found[2] + found[3]);
    }
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half; half /= 2) {
    if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
