// expect: accept
// problem: row_norm
// Lets the compiler add up in any order.
#pragma GCC optimize("O3,associative-math,no-signed-zeros,no-trapping-math,no-math-errno")
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    float sum = 0;
    for (int64_t j = cols; j-- > 0;) sum += x[i * cols + j] * x[i * cols + j];
    out[i] = sqrtf(sum);
  }
}
