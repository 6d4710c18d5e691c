// expect: contained
// problem: gauss
// Spins with every signal blocked that can be.
#include <signal.h>

#include <cstdint>

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  for (volatile int turn = 0;;) turn = turn + 1;
}
