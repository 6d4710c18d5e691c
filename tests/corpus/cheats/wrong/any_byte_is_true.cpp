// expect: reject
// problem: flags
// Writes what is false, and leaves in place of what is true whatever lay there, which most would take for true.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, uint8_t *out, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < n; i++) {
    if (!(std::fabs(x[i]) > 0.1f)) out[i] = 0;
  }
}
