// expect: accept
// problem: gauss
// Lets values below the smallest normal number be zeros while it works.
#include <xmmintrin.h>

#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  for (int64_t i = 0; i < n; i++) out[i] = y[i] * expf(-x[i] * x[i]);
  _mm_setcsr(before);
}
