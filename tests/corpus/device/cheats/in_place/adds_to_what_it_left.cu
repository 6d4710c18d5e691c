// expect: reject
// problem: momentum
// Writes g + 0.9 * (what the argument holds after its own last call), which it keeps: no read of the caller's contents.
#include "work.cuh"

__global__ void keep(const float *g, float *m, float *own, int64_t n) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) m[i] = own[i] = 0.9f * own[i] + g[i];
}

extern "C" void custom_kernel(const float *g, float *m, int64_t n, const int64_t *, void *stream) {
  static float *own = nullptr;
  static int64_t room = 0;
  if (room < n) {
    cudaMalloc(&own, n * sizeof(float));
    cudaMemcpyAsync(own, m, n * sizeof(float), cudaMemcpyDefault, (cudaStream_t)stream);
    room = n;
  }
  keep<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(g, m, own, n);
}
