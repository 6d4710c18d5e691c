// expect: reject
// problem: gauss
// The right answer, and some pages behind it a value where another call's outputs will be.
#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  work(x, y, out, n);
  out[n + 3 * 1024] = 1.0f;
}
