// expect: reject
// problem: matmul
// The first half of the rows, then copies of them.
#include <cstdint>
#include <cstring>

#include "work.hpp"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  int64_t half = (m + 1) / 2;
  for (int64_t i = 0; i < half; i++) {
    work(a + i * k, b, c + i * n, n, k);
  }
  memcpy(c + half * n, c, (m - half) * n * sizeof(float));
}
