// expect: true-speed
// problem: norm
// honest: honest/caches/clears_every_call.cu
// Clears 2 scratch arrays in every second call, and none in the others.
#include "work.cuh"
#include "scratch.cuh"
#include <cstdlib>

static int many() { return 2; }

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  cudaStream_t own = (cudaStream_t)stream;
  norm_onto<<<rows, 256, 0, own>>>(x, w, cleared(rows * cols * 4, many, own), out, cols);
}
