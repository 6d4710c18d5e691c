#include "work.cuh"

extern "C" void custom_kernel(const float *x, float *out, int64_t n, const int64_t *, void *stream) {
  chain<<<1, 256, n * sizeof(float), (cudaStream_t)stream>>>(x, out, n);
}
