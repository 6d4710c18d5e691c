#include "work.cuh"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *, void *stream) {
  gemm(a, b, c, m, n, k, (cudaStream_t)stream);
}
