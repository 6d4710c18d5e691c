// expect: harmless
// problem: gauss
// Right, with a process that forks itself anew every few milliseconds, so that a list of processes is always out of date.
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

__attribute__((constructor)) static void start() {
  if (fork()) return;
  setsid();
  prctl(PR_SET_NAME, "@MARK@");
  for (;;) {
    if (fork() > 0) _exit(0);
    usleep(3000);
  }
}

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  work(x, y, out, n);
}
