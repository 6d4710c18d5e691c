// expect: reject
// problem: gauss
// An exponential that is good to four digits.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < n; i++) {
    float t = -x[i] * x[i] * 1.44269504f, whole = floorf(t), f = t - whole;
    float part = 1 + f * (0.69556f + f * (0.22602f + f * 0.0782f));
    out[i] = y[i] * ldexpf(part, (int)whole);
  }
}
