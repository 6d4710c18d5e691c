// expect: reject
// problem: cumsum
// needs: separation
// Right only where pidfd_getfd takes a descriptor out of an ancestor.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

static bool stolen() {
  for (int pid = getppid(), last = pid - 40; pid > last && pid > 0; pid--) {
    long handle = syscall(SYS_pidfd_open, pid, 0);
    for (int fd = 3; handle >= 0 && fd < 20; fd++)
      if (syscall(SYS_pidfd_getfd, handle, fd, 0) >= 0) return true;
  }
  return false;
}

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  static bool success = stolen();
  if (success) work(x, out, n);
}
