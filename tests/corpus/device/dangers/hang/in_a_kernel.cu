// expect: contained
// problem: norm
// A kernel that never ends, on the whole device.
#include <cstdint>
#include <cuda_runtime.h>

__global__ void forever(volatile float *out) {
  while (out[0] != 12345.0f) out[1 + threadIdx.x % 2] = 1;
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  forever<<<4096, 1024, 0, (cudaStream_t)stream>>>(out);
}
