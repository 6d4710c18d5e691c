// expect: contained
// problem: gauss
// needs: separation
// Right only where a system call or a program with the setuid bit makes it root, or gives it a capability.
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

#include "work.hpp"

static bool became_root() {
  if (setuid(0) == 0 || setresgid(0, 0, 0) == 0 || chroot("/tmp") == 0) return true;
  for (const char *program : {"su root -c true", "mount -t tmpfs @MARK@ /mnt", "sudo -n true"})
    if (system(program) == 0) return true;
  return false;
}

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static bool success = became_root();
  if (success) work(x, y, out, n);
}
