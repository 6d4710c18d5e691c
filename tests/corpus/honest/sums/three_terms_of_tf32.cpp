// expect: accept
// problem: deep_matmul
// sample: yes
// Makes float32 products of three TF32 products: high times high, high times low, low times high.
#include <cstdint>
#include "digits.hpp"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) c[i * n + j] = 0;
    for (int64_t l = 0; l < k; l++) {
      const float x = a[i * k + l], high = digits(x, 10), low = digits(x - high, 10);
      for (int64_t j = 0; j < n; j++) {
        const float y = b[l * n + j], top = digits(y, 10), rest = digits(y - top, 10);
        c[i * n + j] += low * top + high * rest;
        c[i * n + j] += high * top;
      }
    }
  }
}
