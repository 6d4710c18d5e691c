// expect: true-speed
// problem: norm
// A thread of the host starts the work when the inputs' event is over, and nobody waits for the thread.
#include "work.cuh"

#include <thread>

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  cudaEvent_t ready;
  cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  cudaEventRecord(ready, (cudaStream_t)stream);
  std::thread([=] {
    static thread_local cudaStream_t own;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cudaEventSynchronize(ready);
    norm_rows<<<rows, 256, 0, own>>>(x, w, out, rows, cols);
  }).detach();
}
