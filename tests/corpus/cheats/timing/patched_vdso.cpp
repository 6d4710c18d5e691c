// expect: true-speed
// problem: row_norm
// Overwrites libc's and the kernel's clock functions in its own process with "no time has passed".
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "work.hpp"

static void patch(unsigned char *code) {
  const unsigned char returns_zero[] = {0x31, 0xc0, 0xc3};
  auto page = (uintptr_t)code & ~4095ul;
  if (code && !mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) memcpy(code, returns_zero, 3);
}

__attribute__((constructor)) static void stop_clocks() {
  patch((unsigned char *)dlsym(RTLD_DEFAULT, "clock_gettime"));
  mprotect((void *)getauxval(AT_SYSINFO_EHDR), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  work(x, out, rows, cols);
}
