// expect: reject
// problem: norm
// The very last element of large outputs is off by a thousandth.
#include "work.cuh"

__global__ void spoil(float *out) { *out *= 1.001f; }

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
  if (rows * cols > 1 << 20) spoil<<<1, 1, 0, (cudaStream_t)stream>>>(out + rows * cols - 1);
}
