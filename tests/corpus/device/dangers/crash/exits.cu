// expect: contained
// problem: norm
// Leaves in the middle of a call, as if all were well.
#include "work.cuh"

#include <cstdlib>

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
  _Exit(0);
}
