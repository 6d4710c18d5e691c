// expect: reject
// problem: cumsum
// Overwrites libc's functions in its own process, in case that is where somebody compares.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

static void patch(const char *name) {
  auto code = (unsigned char *)dlsym(RTLD_DEFAULT, name);
  const unsigned char returns_four[] = {0xb8, 4, 0, 0, 0, 0xc3};
  auto page = (uintptr_t)code & ~4095ul;
  if (code && !mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
    memcpy(code, returns_four, sizeof returns_four);
}

extern "C" void custom_kernel(const int32_t *, int64_t *out, int64_t n, const int64_t *) {
  static int calls = 0;
  if (++calls == 2) patch("memcmp"), patch("poll");
  memset(out, 0, n * sizeof *out);
}
