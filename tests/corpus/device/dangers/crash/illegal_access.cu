// expect: contained
// problem: norm
// Writes where nothing is mapped.
#include <cstdint>
#include <cuda_runtime.h>

__global__ void far(float *out) { out[1ll << 40] = 1; }

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  far<<<1, 1, 0, (cudaStream_t)stream>>>(out);
}
