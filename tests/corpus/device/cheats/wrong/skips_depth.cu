// expect: reject
// problem: gemm
// Leaves out the last sixteenth of k where that is large.
#include "work.cuh"

__global__ void __launch_bounds__(256) most(const float *a, const float *b, float *c, int m, int n, int k) {
  tile(a, b, c, m, n, k, blockIdx.y * 64, blockIdx.x * 64, 0, k > 200 ? k - k / 16 : k, false);
}

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *, void *stream) {
  most<<<dim3((n + 63) / 64, (m + 63) / 64), 256, 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
}
