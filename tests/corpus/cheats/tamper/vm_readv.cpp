// expect: reject
// problem: row_norm
// needs: separation
// Right only where process_vm_readv reads its parent, which was forked from the same image and has the same addresses.
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

static bool read_parent() {
  for (int pid = getppid(), last = pid - 40; pid > last && pid > 0; pid--) {
    char buffer[8];
    iovec own{buffer, 8}, theirs{(void *)&environ, 8};
    if (process_vm_readv(pid, &own, 1, &theirs, 1, 0) == 8) return true;
  }
  return false;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static bool success = read_parent();
  if (success) work(x, out, rows, cols);
}
