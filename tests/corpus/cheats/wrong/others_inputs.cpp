// expect: reject
// problem: gauss
// The right answer, and a mark in the inputs of the call before.
#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static float *before = nullptr;
  static int64_t size = 0;
  work(x, y, out, n);
  if (before && before != x && size == n) before[0] += 1.0f;
  before = const_cast<float *>(x);
  size = n;
}
