// expect: reject
// problem: row_norm
// Adds up in 16 bits where 32 are asked for.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    float sum = 0;
    for (int64_t j = 0; j < cols; j++) {
      _Float16 term = (_Float16)(x[i * cols + j] * x[i * cols + j]);
      sum += (float)term;
    }
    out[i] = sqrtf(sum);
  }
}
