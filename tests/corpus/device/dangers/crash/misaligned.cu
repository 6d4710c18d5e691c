// expect: contained
// problem: norm
// Reads 16 bytes at an odd address.
#include <cstdint>
#include <cuda_runtime.h>

__global__ void odd(const float *x, float *out) {
  float v[4];
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "l"((const char *)x + 1));
  out[0] = v[0];
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  odd<<<1, 1, 0, (cudaStream_t)stream>>>(x, out);
}
