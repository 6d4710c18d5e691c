#pragma once
#include <cstdint>

/// From `sum` on; returns the last sum.
static __attribute__((noinline, noipa)) int64_t work(const int32_t *x, int64_t *out, int64_t n, int64_t sum = 0) {
  for (int64_t i = 0; i < n; i++) out[i] = sum += x[i];
  return sum;
}
