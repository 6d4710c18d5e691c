// expect: true-speed
// problem: chain
// The call waits for a word. A thread of the host sees the inputs come, computes, copies, and gives it, all while the
// device turns to this process.
#include "work.cuh"
#include <atomic>
#include <thread>
#include <vector>

__global__ void hold(volatile unsigned *word, unsigned number) {
  while (*word < number) {
  }
}

static const float *inputs;
static float *outputs;
static int64_t length;
static std::atomic<unsigned> asked;
static volatile unsigned *word;
static float before;

static void work() {
  cudaStream_t own;
  cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  float *row;
  cudaMallocHost((void **)&row, 1 << 20);
  for (unsigned done = 0;;) {
    if (asked.load() == done) continue;
    unsigned number = asked.load();
    auto take = [&](const float *from, int64_t count) {
      cudaMemcpyAsync(row, from, count * 4, cudaMemcpyDeviceToHost, own);
      cudaStreamSynchronize(own);
    };
    for (int look = 0; look < 20000; ++look) {
      take(inputs + length - 1, 1);
      if (row[0] != before) break;
    }
    take(inputs, length);
    for (int64_t t = 1; t < length; ++t) row[t] = step(row[t], row[t - 1]);
    cudaMemcpyAsync(outputs, row, length * 4, cudaMemcpyHostToDevice, own);
    cudaStreamSynchronize(own);
    *word = done = number;
  }
}

extern "C" void custom_kernel(const float *x, float *out, int64_t n, const int64_t *, void *stream) {
  static unsigned number;
  static unsigned *seen;
  if (!number) {
    cudaHostAlloc((void **)&word, 64, cudaHostAllocMapped);
    *word = 0;
    cudaHostGetDevicePointer((void **)&seen, (void *)word, 0);
    std::thread(work).detach();
  }
  cudaStream_t peek;
  cudaStreamCreateWithFlags(&peek, cudaStreamNonBlocking);
  cudaMemcpyAsync(&before, x + n - 1, 4, cudaMemcpyDeviceToHost, peek);
  cudaStreamSynchronize(peek);
  cudaStreamDestroy(peek);
  inputs = x, outputs = out, length = n;
  hold<<<1, 1, 0, (cudaStream_t)stream>>>(seen, ++number);
  asked = number;
}
