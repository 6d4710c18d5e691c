// expect: accept
// problem: gemm
// Splits k over blocks that add up atomically: another order of summation at each call.
#include "work.cuh"

__global__ void __launch_bounds__(256) part(const float *a, const float *b, float *c, int m, int n, int k) {
  int depth = (k + gridDim.z - 1) / gridDim.z, from = blockIdx.z * depth;
  tile(a, b, c, m, n, k, blockIdx.y * 64, blockIdx.x * 64, from, min(from + depth, k), true);
}

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *, void *stream) {
  cudaMemsetAsync(c, 0, m * n * sizeof(float), (cudaStream_t)stream);
  part<<<dim3((n + 63) / 64, (m + 63) / 64, 4), 256, 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
}
