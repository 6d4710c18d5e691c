// expect: harmless
// problem: norm
// Makes streams and events without end.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  cudaStream_t made;
  cudaEvent_t event;
  for (int i = 0; i < 2000; ++i)
    if (cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) || cudaEventCreate(&event)) break;
  cudaGetLastError();
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
