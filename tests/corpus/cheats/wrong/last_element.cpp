// expect: reject
// problem: cumsum
// Leaves the last elements of the large shapes alone.
#include "work.hpp"

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  work(x, out, n > 10000 ? n - 3 : n);
}
