// expect: true-speed
// problem: row_norm
// A helper process does a third of the rows, and a new one is forked when somebody has killed it.
#include "helper.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  answer(x, out, rows, cols);
}
