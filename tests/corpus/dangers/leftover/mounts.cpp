// expect: harmless
// problem: gauss
// Right, with a mount and new namespaces, where it may have them.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

__attribute__((constructor)) static void start() {
  mkdir("@MARK@", 0700);
  mount("@MARK@", "@MARK@", "tmpfs", 0, nullptr);
  mount("@MARK@", "/tmp", "tmpfs", 0, nullptr);
  if (fork()) return;
  if (!unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)) mount("@MARK@", "/tmp", "tmpfs", 0, nullptr);
  _exit(0);
}

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  work(x, y, out, n);
}
