// expect: reject
// problem: row_norm
// needs: separation
// Right only where it can start a process in the race, having made libc's prctl and syscall do nothing.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "work.hpp"

static void patch(const char *name) {
  const unsigned char returns_zero[] = {0x31, 0xc0, 0xc3};
  auto code = (unsigned char *)dlsym(RTLD_DEFAULT, name);
  auto page = (uintptr_t)code & ~4095ul;
  if (code && !mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) memcpy(code, returns_zero, 3);
}

__attribute__((constructor)) static void unlock() {
  patch("prctl");
  patch("syscall");
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static int calls = 0, child = 1;
  if (rows > 100 && ++calls == 14) {
    signal(SIGCHLD, SIG_IGN);
    child = fork();
    if (child == 0) _exit(0);
  }
  if (child > 0) work(x, out, rows, cols);
}
