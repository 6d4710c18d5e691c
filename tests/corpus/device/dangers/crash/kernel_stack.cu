// expect: contained
// problem: norm
// Recursion in a kernel that goes deeper than its stack.
#include <cstdint>
#include <cuda_runtime.h>

__device__ __noinline__ float deeper(volatile float *x, int depth) {
  volatile float room[64];
  room[depth % 64] = x[0];
  return depth ? deeper(room, depth - 1) + room[depth % 64] : 0;
}

__global__ void deep(float *out, int depth) { out[0] = deeper(out, depth); }

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  deep<<<1, 32, 0, (cudaStream_t)stream>>>(out, 10000000);
}
