// expect: reject
// problem: gemm
// Adds to outputs that a stream of its own has cleared while the call was queued. Its honest twin is split_depth.cu.
#include "work.cuh"

__global__ void __launch_bounds__(256) parts(const float *a, const float *b, float *c, int m, int n, int k) {
  int from = blockIdx.z * (k / 2), to = blockIdx.z ? k : k / 2;
  tile(a, b, c, m, n, k, blockIdx.y * 64, blockIdx.x * 64, from, to, true);
}

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *, void *stream) {
  static cudaStream_t side;
  if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  cudaMemsetAsync(c, 0, m * n * sizeof(float), side);
  parts<<<dim3((n + 63) / 64, (m + 63) / 64, 2), 256, 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
}
