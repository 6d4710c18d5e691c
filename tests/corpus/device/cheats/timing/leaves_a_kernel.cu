// expect: true-speed
// problem: norm
// Every call leaves a kernel on a stream of its own that keeps the device busy for a while after the call has ended.
#include "work.cuh"

__global__ void linger() {
  long long start = clock64();
  while (clock64() - start < 20000000) {
  }
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static cudaStream_t side;
  static cudaEvent_t done;
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  }
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
  cudaEventRecord(done, (cudaStream_t)stream);
  cudaStreamWaitEvent(side, done);
  linger<<<32, 32, 0, side>>>();
}
