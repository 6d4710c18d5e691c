// expect: reject
// problem: norm
// Right, but stored with the precision of fp16.
#include "work.cuh"
#include <cuda_fp16.h>

__global__ void shorten(float *out, int64_t count) {
  int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < count) out[i] = __half2float(__float2half(out[i]));
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
  shorten<<<(rows * cols + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, rows * cols);
}
