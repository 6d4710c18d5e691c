// expect: reject
// problem: gauss
// Seals the shared memory against writing, so that the judge can neither poison nor refill it. The output stays.
#include <fcntl.h>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static int calls = 0;
  for (int fd = 0; n > 10000 && fd < 256; fd++) fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_WRITE | F_SEAL_SEAL);
  if (n < 10000 || ++calls < 3) work(x, y, out, n);
}
