// expect: accept
// problem: norm
// Three quarters of the rows on the given stream and a quarter on one of its own, joined by events.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static cudaStream_t side;
  static cudaEvent_t fork, join;
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  }
  int64_t there = rows / 4, at = (rows - there) * cols;
  cudaEventRecord(fork, (cudaStream_t)stream);
  cudaStreamWaitEvent(side, fork);
  if (there) norm_rows<<<there, 256, 0, side>>>(x + at, w, out + at, there, cols);
  norm_rows<<<rows - there, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows - there, cols);
  cudaEventRecord(join, side);
  cudaStreamWaitEvent((cudaStream_t)stream, join);
}
