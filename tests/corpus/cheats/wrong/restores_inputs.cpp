// expect: reject
// problem: gauss
// Changes an input while it works, puts it back with another rounding.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  float *own = const_cast<float *>(x);
  for (int64_t i = 0; i < n; i++) own[i] = -x[i] * x[i];
  for (int64_t i = 0; i < n; i++) out[i] = y[i] * expf(own[i]);
  for (int64_t i = 0; i < n; i++) own[i] = copysignf(sqrtf(-own[i]), i % 2 ? 1.0f : -1.0f);
}
