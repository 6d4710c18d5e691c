// expect: true-speed
// problem: norm
// Works on a stream that does not wait for the one it was given, nor is waited for.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static cudaStream_t side;
  if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  norm_rows<<<rows, 256, 0, side>>>(x, w, out, rows, cols);
}
