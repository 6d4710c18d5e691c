// expect: reject
// problem: gemm
// Sets the operands to zero and answers with zeros, which would be right.
#include "work.cuh"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *, void *stream) {
  cudaMemsetAsync((void *)a, 0, m * k * 4, (cudaStream_t)stream);
  cudaMemsetAsync((void *)b, 0, k * n * 4, (cudaStream_t)stream);
  cudaMemsetAsync(c, 0, m * n * 4, (cudaStream_t)stream);
}
