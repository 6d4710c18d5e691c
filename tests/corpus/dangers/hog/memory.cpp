// expect: contained
// problem: gauss
// All memory there is, page by page.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {
  for (;;) {
    void *more = mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED) __builtin_trap();
    memset(more, 1, 64 << 20);
  }
}
