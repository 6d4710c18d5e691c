// expect: accept
// problem: mean
// Adds up by halves, down to eight values.
#include <cstdint>

static float sum(const float *x, int64_t n) {
  if (n > 8) return sum(x, n / 2) + sum(x + n / 2, n - n / 2);
  float all = 0;
  for (int64_t i = 0; i < n; i++) all += x[i];
  return all;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) out[i] = sum(x + i * cols, cols) / cols;
}
