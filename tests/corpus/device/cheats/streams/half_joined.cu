// expect: true-speed
// problem: norm
// Queues half of the rows on the stream it was given and half on one that is not joined.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static cudaStream_t side;
  static cudaEvent_t ready;
  if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaEventCreate(&ready);
  cudaEventRecord(ready, (cudaStream_t)stream);
  cudaStreamWaitEvent(side, ready);
  int64_t half = rows / 2;
  norm_rows<<<half ? half : 1, 256, 0, (cudaStream_t)stream>>>(x, w, out, half, cols);
  norm_rows<<<rows - half, 256, 0, side>>>(x + half * cols, w, out + half * cols, rows - half, cols);
}
