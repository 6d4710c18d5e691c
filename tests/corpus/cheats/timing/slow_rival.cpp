// expect: true-speed
// problem: cumsum
// While it is not called, a thread burns the core and the caches that its rival is measured on.
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "work.hpp"

static std::atomic<int64_t> last_call{0};

static int64_t now() {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000ll + at.tv_nsec;
}

static void *burn(void *) {
  std::vector<char> cache(64 << 20);
  for (int64_t turn = 0;; turn++) {
    while (now() - last_call < 200000) {
      timespec pause{0, 20000};
      nanosleep(&pause, nullptr);
    }
    for (int64_t i = 0; i < 4096; i++) cache[(turn * 4096 + i) * 64 % cache.size()]++;
  }
}

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  static pthread_t thread;
  if (!thread) pthread_create(&thread, nullptr, burn, nullptr);
  work(x, out, n);
  last_call = now();
}
