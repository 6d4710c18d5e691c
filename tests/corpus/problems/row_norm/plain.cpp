#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  work(x, out, rows, cols);
}
