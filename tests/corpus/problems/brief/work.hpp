#pragma once
#include <cmath>
#include <cstdint>

static __attribute__((noinline, noipa)) void work(const float *x, const float *y, float *out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = y[i] * expf(-x[i] * x[i]);
}
