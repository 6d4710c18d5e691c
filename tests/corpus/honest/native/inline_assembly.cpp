// expect: accept
// problem: cumsum
// A prefetch and a time stamp in assembly; the time is read and not used.
#include <cstdint>

static volatile uint64_t cycles;

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
#if defined(__x86_64__)
  uint32_t low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  cycles = (uint64_t)high << 32 | low;
  for (int64_t i = 0; i < n; i += 1024) asm volatile("prefetcht0 %0" : : "m"(x[i]));
#endif
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) out[i] = sum += x[i];
}
