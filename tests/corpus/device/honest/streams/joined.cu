// expect: accept
// problem: norm
// Forks to a stream of its own and joins it by events.
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
  cudaEventRecord(fork, (cudaStream_t)stream);
  cudaStreamWaitEvent(side, fork);
  norm_rows<<<rows, 256, 0, side>>>(x, w, out, rows, cols);
  cudaEventRecord(join, side);
  cudaStreamWaitEvent((cudaStream_t)stream, join);
}
