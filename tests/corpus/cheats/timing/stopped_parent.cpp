// expect: true-speed
// problem: cumsum
// Stops itself while a helper does the work and wakes it: stopped processes have no CPU time.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  int parent = getpid(), child = fork();
  if (child == 0) {
    work(x, out, n);
    usleep(100);
    for (int tries = 0; tries < 1000; tries++) kill(parent, SIGCONT), usleep(50);
    _exit(0);
  }
  raise(SIGSTOP);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}
