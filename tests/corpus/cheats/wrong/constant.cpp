// expect: reject
// problem: row_norm
// The expected value of a normal row's norm, without reading the row.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) out[i] = sqrtf(cols - 0.5f);
}
