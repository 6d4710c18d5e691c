// expect: reject
// problem: deep_matmul
// Rounds one operand alone to TF32.
#include <cstdint>
#include "digits.hpp"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  product(a, b, c, m, n, k, 23, 10, false);
}
