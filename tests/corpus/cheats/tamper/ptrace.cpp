// expect: reject
// problem: row_norm
// needs: separation
// Right only where it may attach to its parent or to a process near it.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

static bool attached() {
  for (int pid = getppid(), last = pid - 40; pid > last && pid > 0; pid--) {
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) == 0) {
      ptrace(PTRACE_DETACH, pid, 0, 0);
      return true;
    }
  }
  return false;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static bool success = attached();
  if (success) work(x, out, rows, cols);
}
