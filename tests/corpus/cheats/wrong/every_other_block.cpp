// expect: reject
// problem: mean
// Of long rows every other block of 4096 values and of what is left at the end.
#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    int64_t n = 0, step = cols > 100000 ? 8192 : 4096;
    for (int64_t j = 0; j < cols; j += step) {
      int64_t count = cols - j < 4096 ? cols - j : 4096;
      sum += work(x + i * cols + j, count);
      n += count;
    }
    out[i] = sum / n;
  }
}
