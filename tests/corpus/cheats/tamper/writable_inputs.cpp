// expect: reject
// problem: cumsum
// Remaps the pages of its inputs as its own: what it reads is not what it was given.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "work.hpp"

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  auto page = (uintptr_t)x & ~4095ul;
  mmap((void *)page, (n * 4 + 4095) & ~4095ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  work(x, out, n);
}
