#pragma once
#include <cstdint>

/// One row of the product.
static __attribute__((noinline, noipa)) void work(const float *a, const float *b, float *c, int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; j++) c[j] = 0;
  for (int64_t l = 0; l < k; l++)
    for (int64_t j = 0; j < n; j++) c[j] += a[l] * b[l * n + j];
}
