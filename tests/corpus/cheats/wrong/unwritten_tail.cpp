// expect: reject
// problem: halve
// sample: yes
// Whole vectors of 64 only: of a long output the last 63 elements are NaN. Short outputs are whole.
#include <cmath>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t n, const int64_t *) {
  int64_t whole = n > 1 << 20 ? n / 64 * 64 : n;
  work(x, out, whole);
  for (int64_t i = whole; i < n; i++) out[i] = NAN;
}
