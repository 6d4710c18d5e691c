// expect: contained
// problem: gauss
// Runs out of stack, with a signal handler that runs out of it again.
#include <signal.h>

#include <cstdint>

static int deeper(volatile int *n) {
  volatile int room[1000];
  room[0] = *n + 1;
  return deeper(room) + room[0];
}

static void again(int) {
  volatile int zero = 0;
  deeper(&zero);
}

extern "C" void custom_kernel(const float *, const float *, float *out, int64_t, const int64_t *) {
  signal(SIGSEGV, again);
  volatile int zero = 0;
  out[0] = deeper(&zero);
}
