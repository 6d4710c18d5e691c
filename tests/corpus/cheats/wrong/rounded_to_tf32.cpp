// expect: reject
// problem: deep_matmul
// sample: yes
// Rounds both operands to TF32, as matrix units of GPUs do unless they are told otherwise.
#include <cstdint>
#include "digits.hpp"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  product(a, b, c, m, n, k, 10, 10, false);
}
