// expect: true-speed
// problem: momentum
// honest: problems/momentum/plain.cu
// Its host thread copies the argument ahead of a call, so that the call would read from a warm cache.
#include <atomic>
#include <thread>
#include "work.cuh"

static std::atomic<float *> place{nullptr};
static std::atomic<int64_t> room{0};

extern "C" void custom_kernel(const float *g, float *m, int64_t n, const int64_t *, void *stream) {
  static float *own = nullptr;
  static int64_t held = 0;
  if (held < n) {
    cudaMalloc(&own, n * sizeof(float));
    held = n;
    std::thread([] {
      cudaStream_t side;
      cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
      for (;;) {
        if (float *from = place.load()) cudaMemcpyAsync(own, from, room.load() * sizeof(float), cudaMemcpyDefault, side);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }).detach();
  }
  momentum<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(g, m, n);
  room = n, place = m;
}
