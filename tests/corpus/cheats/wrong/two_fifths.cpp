// expect: reject
// problem: mean
// sample: yes
// Of long rows only the first two fifths: their mean is near that of the whole row. Short rows are read whole.
#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    int64_t n = cols > 100000 ? cols * 2 / 5 : cols;
    out[i] = work(x + i * cols, n) / n;
  }
}
