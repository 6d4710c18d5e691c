#include "work.cuh"

extern "C" void custom_kernel(const float *g, float *m, int64_t n, const int64_t *, void *stream) {
  momentum<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(g, m, n);
}
