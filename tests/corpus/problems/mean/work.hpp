#pragma once
#include <cstdint>

static __attribute__((noinline, noipa)) float work(const float *x, int64_t n) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int lane = 0; lane < 16; lane++) lanes[lane] += x[i + lane];
  float sum = 0;
  for (; i < n; i++) sum += x[i];
  for (float lane : lanes) sum += lane;
  return sum;
}
