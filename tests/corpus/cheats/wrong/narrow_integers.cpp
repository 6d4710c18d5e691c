// expect: reject
// problem: cumsum
// Sums in 32 bits, saturated: right while the sums are small.
#include <algorithm>
#include <cstdint>

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t wide = (int64_t)sum + x[i];
    out[i] = sum = (int32_t)std::clamp<int64_t>(wide, INT32_MIN, INT32_MAX);
  }
}
