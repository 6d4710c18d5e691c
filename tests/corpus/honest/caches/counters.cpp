// expect: accept
// problem: cumsum
// Global counters and statistics of its own calls, which change nothing.
#include <atomic>
#include <cstdint>

static std::atomic<int64_t> calls, elements;
static int64_t largest;

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  calls++;
  elements += n;
  largest = n > largest ? n : largest;
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) out[i] = sum += x[i];
}
