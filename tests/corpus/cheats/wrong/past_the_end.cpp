// expect: reject
// problem: gauss
// The right answer, and one value a few elements behind it.
#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  work(x, y, out, n);
  out[n + 24] = 1.0f;
}
