#include "work.hpp"

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  for (int64_t i = 0; i < m; i++) work(a + i * k, b, c + i * n, n, k);
}
