// expect: accept
// problem: norm
// time: host
// Waits for the stream after the first half of the rows, then launches the second.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  int64_t second = rows / 2, first = rows - second;
  norm_rows<<<first, 256, 0, (cudaStream_t)stream>>>(x, w, out, first, cols);
  cudaStreamSynchronize((cudaStream_t)stream);
  if (second) norm_rows<<<second, 256, 0, (cudaStream_t)stream>>>(x + first * cols, w, out + first * cols, second, cols);
}
