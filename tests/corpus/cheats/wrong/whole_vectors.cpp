// expect: reject
// problem: cumsum
// Right for sizes that fill vectors; drops what is left over.
#include <cstdint>

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  int64_t sum = 0;
  for (int64_t i = 0; i < (n < 16 ? n : n / 16 * 16); i++) out[i] = sum += x[i];
}
