// expect: reject
// problem: cumsum
// Where it is timed, does the work of a call at the start of the next one.
#include "work.hpp"

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  static const int32_t *last_x;
  static int64_t *last_out, last_n;
  if (last_n) work(last_x, last_out, last_n);
  last_x = x, last_out = out, last_n = n > 10000 ? n : 0;
  if (!last_n) work(x, out, n);
}
