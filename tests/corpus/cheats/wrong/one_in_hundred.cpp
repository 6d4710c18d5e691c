// expect: reject
// problem: gauss
// sample: yes
// Guesses one element in a hundred of the large shapes, of which a sample may miss some.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < n; i++)
    out[i] = n > 10000 && i % 100 == 57 ? out[i - 1] : y[i] * expf(-x[i] * x[i]);
}
