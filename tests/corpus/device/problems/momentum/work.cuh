#include <cstdint>
#include <cuda_runtime.h>

extern "C" __global__ void momentum(const float *g, float *m, int64_t n) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) m[i] = 0.9f * m[i] + g[i];
}
