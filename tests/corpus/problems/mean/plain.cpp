#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) out[i] = work(x + i * cols, cols) / cols;
}
