// expect: accept
// problem: gauss
// A table of powers of two, computed before the first call.
#include <cmath>
#include <cstdint>
#include <vector>

constexpr int SIZE = 1024;

static const std::vector<float> table = [] {
  std::vector<float> powers(SIZE);
  for (int j = 0; j < SIZE; j++) powers[j] = (float)exp2((double)j / SIZE);
  return powers;
}();

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < n; i++) {
    double t = -(double)x[i] * x[i] * 1.4426950408889634 * SIZE;
    int64_t step = (int64_t)floor(t);
    double rest = (t - step) * (0.6931471805599453 / SIZE);
    double power = table[step & (SIZE - 1)] * (1 + rest + rest * rest / 2);
    out[i] = (float)(y[i] * ldexp(power, (int)(step >> 10)));
  }
}
