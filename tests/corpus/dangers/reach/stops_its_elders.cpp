// expect: contained
// problem: gauss
// needs: separation
// Right only where it can stop its parent.
#include <signal.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static bool success = getppid() > 1 && kill(getppid(), SIGSTOP) == 0;
  if (success) work(x, y, out, n);
}
