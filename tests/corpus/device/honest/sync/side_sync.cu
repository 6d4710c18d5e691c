// expect: accept
// problem: norm
// time: host
// Half of the rows on a stream of its own, for which the host waits before the call returns.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static cudaStream_t side;
  static cudaEvent_t fork;
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  }
  int64_t second = rows / 2, first = rows - second;
  cudaEventRecord(fork, (cudaStream_t)stream);
  cudaStreamWaitEvent(side, fork);
  if (second) norm_rows<<<second, 256, 0, side>>>(x + first * cols, w, out + first * cols, second, cols);
  norm_rows<<<first, 256, 0, (cudaStream_t)stream>>>(x, w, out, first, cols);
  cudaStreamSynchronize(side);
}
